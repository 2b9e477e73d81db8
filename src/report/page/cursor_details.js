// What the chosen rank's pools have at the cursor, and all that is known of the chosen block.
function writeCursor(state) {
  const rank = state.shownRank(), time = state.shownTime();
  const section = d3.select("#cursor");
  section.select("h2").text(rank ? `Rank ${rank.rank} at ${formatTime(time, state.model.end)}` : "No rank");
  if (!rank || !rank.pools.length) {
    section.select("table").selectAll("*").remove();
    return;
  }
  const rows = rank.pools.map(pool => {
    const bytes = bytesAt(pool, time);
    const name = asleepSince(pool, time) >= 0 ? `${pool.name} (asleep)` : pool.name;
    return [name, ...["allocated", "requested", "cached", "pending", "reserved"].map(each => formatBytes(bytes[each]))];
  });
  writeTable(section.select("table"), [["pool"], ["allocated", "number"], ["requested", "number"], ["cached", "number"],
    ["pending", "number"], ["reserved", "number"]], rows).attr("class", (row, index) => index === state.pool ? "chosen" : null);
}

function blockFacts(state, pool, block) {
  const {segment, offset, bytes, requested, from, to, stream} = pool.blocks;
  const facts = [["pool", `${pool.name}, rank ${state.shownRank().rank}`],
    ["size", `${formatBytes(bytes[block])} (${formatCount(bytes[block])} bytes)`]];
  if (requested[block] >= 0) facts.push(["requested", `${formatCount(requested[block])} bytes`]);
  const address = pool.segments.address[segment[block]];
  if (address) facts.push(["address", `${address} + ${formatCount(offset[block])}`]);
  const begin = state.shownRank().begin;
  facts.push(["from", from[block] <= begin ? "before the recording begins" :
    formatTime(Math.max(0, from[block]), state.model.end)]);
  facts.push(["to", to[block] < 0 ? "never freed" : formatTime(to[block], state.model.end)]);
  if (to[block] >= 0) facts.push(["lived", formatDuration(to[block] - from[block])]);
  const streamName = textOf(state.model, stream[block]);
  if (streamName) facts.push(["stream", streamName]);
  return facts;
}

function writeBlock(state) {
  const pool = state.shownPool(), section = d3.select("#block");
  const known = pool && state.block >= 0 && state.block < pool.blocks.bytes.length;
  section.attr("hidden", known ? null : "");
  if (!known) return;
  const list = section.select("dl");
  list.selectAll("*").remove();
  for (const [name, value] of blockFacts(state, pool, state.block)) {
    list.append("dt").text(name);
    list.append("dd").text(value);
  }
  const stack = textOf(state.model, pool.blocks.stack[state.block]);
  section.select("pre").text(stack || "No stack was recorded.");
}

// Blocks of each small size class in the slice of time that the cursor is in.
function writeSmall(state) {
  const pool = state.shownPool(), section = d3.select("#small");
  const slice = pool ? pointAt(pool.small.time, state.shownTime()) : -1;
  const rows = slice < 0 ? [] : pool.small.bytes.map((bytes, index) => [formatBytes(bytes),
    formatCount((pool.small.held[slice] || [])[index] || 0), formatCount((pool.small.served[slice] || [])[index] || 0)])
    .filter(([, held, served]) => held !== "0" || served !== "0");
  section.attr("hidden", rows.length ? null : "");
  if (rows.length) {
    const begin = formatTime(pool.small.time[slice], state.model.end);
    section.select("h2").text(`Small blocks of ${pool.name}, from ${begin} on`);
    writeTable(section.select("table"), [["size"], ["in caches", "number"], ["served", "number"]], rows);
  }
}

function speak(state) {
  const pool = state.shownPool(), rank = state.shownRank();
  if (!pool) return;
  d3.select("#spoken").text(`Rank ${rank.rank}, ${pool.name}, ${formatTime(state.cursor, state.model.end)}: ` +
    poolValue(pool, state.cursor));
}

function makeDetails(state) {
  let asked = false;
  const write = () => {
    asked = false;
    writeCursor(state);
    writeSmall(state);
  };
  const ask = () => {
    if (!asked) requestAnimationFrame(write);
    asked = true;
  };
  state.changes.on("time.details", () => {
    ask();
    if (state.hover === null) speak(state);
  });
  state.changes.on("choice.details", () => {
    ask();
    writeBlock(state);
    speak(state);
  });
  write();
}

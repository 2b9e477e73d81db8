// The addresses of the chosen pool at the cursor.
function describeUnder(map, under) {
  const {pool} = map;
  const registrations = under.segment.registrations.map(index =>
    `\n${pool.registrations.kind[index]} of communicator ${pool.registrations.communicator[index]}`).join("");
  if (under.block >= 0) {
    return `block of ${formatBytes(pool.blocks.bytes[under.block])}\n` +
      `${placeOf(textOf(map.model, pool.blocks.stack[under.block]))}${registrations}`;
  }
  return under.gap ? `free: ${formatBytes(under.gap.bytes)}${registrations}` : "";
}

function writeMapLegend(map, colours) {
  const kinds = new Set(map.pool ? map.pool.registrations.kind : []);
  const items = [["free", colours.free], ["largest gap", colours.gap]];
  if (kinds.has("window")) items.push(["registered as window", colours.registration]);
  if (kinds.has("buffer")) items.push(["registered as buffer", colours.scope]);
  if (map.pool) items.push(...blockColours(map.model, map.pool, map.colourBy).legend);
  const entries = d3.select("#map-legend").selectAll("li").data(items).join(
    enter => enter.append("li").call(item => item.append("i")).call(item => item.append("span")));
  entries.select("span").text(([name]) => name);
  entries.select("i").style("background", ([, colour]) => colour);
}

function makeAddressMap(state) {
  const {model} = state;
  const map = {model, memory: null, pool: null, width: 0, colourBy: "stack", sameScale: false, largestSegment: 1};
  let colours = readColours();
  const scroll = makeScrollCanvas(document.getElementById("map"), draw);

  function look() {
    const pool = state.shownPool();
    Object.assign(map, {pool, block: state.block, time: state.shownTime(), width: scroll.width});
    if (!pool) return;
    map.memory = memoryAt(pool, map.time);
    map.colourOf = blockColours(model, pool, map.colourBy).colourOf;
    map.asleep = asleepSince(pool, map.time) >= 0;
    map.largestSegment = d3.max(map.memory.segments, segment => segment.bytes) || 1;
    const count = map.memory.segments.length;
    map.rowHeight = Math.max(MAP_ROWS[0], Math.min(MAP_ROWS[1], Math.floor((scroll.height - 6) / Math.max(1, count))));
    scroll.setTotal(count * map.rowHeight + 6);
  }

  // A pool of few segments needs no more room than they fill: the time lines get the rest.
  function takeRoom() {
    const pool = state.shownPool(), main = document.querySelector("main");
    const rows = Math.max(1, pool ? pool.segments.bytes.length : 1) * MAP_ROWS[1];
    const around = document.getElementById("addresses").offsetHeight - scroll.element.offsetHeight;
    main.style.setProperty("--map", `${around + rows + 8}px`);
  }

  function draw(context) {
    look();
    const rank = state.shownRank();
    d3.select("#addresses-title").text(map.pool ? `Addresses of ${map.pool.name}, rank ${rank.rank}` : "Addresses");
    const sentences = map.pool ? freeMemorySentences(map.pool, map.memory, map.time) :
      [["", rank ? "This rank has no pool, so there are no addresses to show." : "There is no rank to show."]];
    writeFreeMemory(d3.select("#free-memory"), sentences);
    writeMapLegend(map, colours);
    if (!map.pool) return;
    const top = scroll.scrollTop(), first = Math.max(0, Math.floor(top / map.rowHeight));
    map.memory.segments.slice(first, Math.ceil((top + scroll.height) / map.rowHeight)).forEach((segment, place) => {
      drawSegment(context, segment, map, (first + place) * map.rowHeight - top, colours);
    });
  }

  function showBlock() {
    if (state.block < 0 || !map.memory) return;
    const row = map.memory.segments.findIndex(segment => lies(state.block, segment));
    const top = scroll.scrollTop();
    if (row >= 0 && (row * map.rowHeight < top || (row + 1) * map.rowHeight > top + scroll.height)) {
      scroll.element.scrollTop = row * map.rowHeight - scroll.height / 3;
    }
  }

  // The block before or after the chosen one, by address.
  function step(distance) {
    const blocks = map.memory ? [].concat(...map.memory.segments.map(segment => segment.blocks)) : [];
    if (!blocks.length) return;
    const place = blocks.indexOf(state.block);
    const last = blocks.length - 1;
    const next = place < 0 && distance < 0 ? last : Math.max(0, Math.min(last, place + distance));
    state.choose(state.rank, state.pool, blocks[next]);
    look();
    showBlock();
  }

  scroll.element.addEventListener("keydown", event => {
    const distance = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!distance || event.shiftKey) return;
    step(distance);
    event.preventDefault();
    event.stopPropagation();
  });
  scroll.canvas.addEventListener("pointermove", event => {
    const under = memoryUnder(map, event.offsetX, event.offsetY + scroll.scrollTop());
    showTip(d3.select("#tip"), under ? describeUnder(map, under) : "", event);
  });
  scroll.canvas.addEventListener("pointerleave", () => showTip(d3.select("#tip"), "", null));
  scroll.canvas.addEventListener("click", event => {
    const under = memoryUnder(map, event.offsetX, event.offsetY + scroll.scrollTop());
    state.choose(state.rank, state.pool, under ? under.block : -1);
  });
  d3.select("#colour-by").on("change", function () { map.colourBy = this.value; scroll.ask(); });
  d3.select("#same-scale").on("change", function () { map.sameScale = this.checked; scroll.ask(); });
  state.changes.on("time.map", scroll.ask).on("choice.map", () => {
    takeRoom();
    scroll.ask();
    requestAnimationFrame(showBlock);
  });
  return {
    fit() { takeRoom(); scroll.fit(); scroll.ask(); },
    recolour() { colours = readColours(); scroll.ask(); },
  };
}

// The list of what a search found; Enter or a click goes there.
function hitTitle(model, hit) {
  const rank = model.ranks[hit.rank], pool = rank.pools[hit.pool];
  switch (hit.kind) {
    case "pool": return `pool ${pool.name}`;
    case "block": return `${formatBytes(pool.blocks.bytes[hit.block])} in ${pool.name}`;
    case "holder": return `${formatBytes(hit.holder.bytes)} at the peak: ${hit.holder.what || ""}`;
    default: return `${rank.events.kind[hit.event]}: ${rank.events.text[hit.event] || ""}`;
  }
}

function hitPlace(model, hit) {
  const rank = model.ranks[hit.rank], pool = rank.pools[hit.pool];
  const stack = hit.kind === "block" ? textOf(model, pool.blocks.stack[hit.block]) :
    hit.kind === "holder" ? textOf(model, hit.holder.stack) : "";
  return [`rank ${rank.rank}`, formatTime(Math.max(0, hit.time), model.end), placeOf(stack)].filter(Boolean).join(" · ");
}

function hitsTitle(counts, listed) {
  const words = {pool: "pool", block: "block", event: "event", holder: "row"};
  const parts = Object.keys(words).filter(kind => counts[kind]).map(kind =>
    plural(counts[kind], words[kind]) + (kind === "holder" ? " of peaks" : ""));
  if (!parts.length) return "Nothing found";
  const all = d3.sum(Object.values(counts));
  return `Found ${parts.join(", ")}${all > listed ? `; ${formatCount(listed)} are listed` : ""}`;
}

function goTo(state, hit) {
  const end = hit.to >= hit.time ? hit.to : hit.kind === "event" ? hit.time : state.model.end;
  state.jump({rank: hit.rank, pool: hit.pool, block: hit.kind === "block" ? hit.block : -1, time: hit.time,
    to: hit.kind === "pool" ? hit.time : end});
}

function makeSearch(state) {
  const section = d3.select("#hits"), input = document.getElementById("search");
  let found = [], waiting = 0, written = "";
  const run = () => {
    clearTimeout(waiting);
    const query = input.value.trim();
    if (query === written) return;
    written = query;
    section.attr("hidden", query ? null : "");
    const hits = query ? search(state.model, query) : makeHits();
    found = hits.list;
    section.select("h2").text(hitsTitle(hits.counts, found.length));
    section.select("ul").selectAll("li").remove();
    const buttons = section.select("ul").selectAll("li").data(found).join("li").append("button").attr("type", "button");
    buttons.append("span").text(hit => hitTitle(state.model, hit));
    buttons.append("small").text(hit => hitPlace(state.model, hit));
    buttons.on("click", hit => goTo(state, hit));
    d3.select("#spoken").text(section.select("h2").text());
  };
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(run, 150);
  });
  input.addEventListener("keydown", event => {
    if (event.key === "Escape") {
      input.value = "";
      run();
      document.getElementById("rows").focus();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      run();
      if (event.key === "Enter" && found.length) goTo(state, found[0]);
      else if (found.length) section.select("button").node().focus();
    } else {
      return;
    }
    event.preventDefault();
  });
  section.node().addEventListener("keydown", event => {
    const item = event.target.closest("li");
    const other = item && {ArrowDown: item.nextSibling, ArrowUp: item.previousSibling}[event.key];
    if (!other) return;
    other.firstChild.focus();
    event.preventDefault();
    event.stopPropagation();
  });
}

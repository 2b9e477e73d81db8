// The names at the left of the time lines, with the values at the cursor; only of rows that are seen.
function rankTitle(rank) {
  return [rank.host, rank.pid ? `pid ${rank.pid}` : "", rank.program].filter(Boolean).join(" · ");
}

function poolValue(pool, time) {
  if (asleepSince(pool, time) >= 0) return "asleep";
  const bytes = bytesAt(pool, time);
  return `${formatBytes(bytes.allocated)} of ${formatBytes(bytes.reserved)}`;
}

function fillName(row, state) {
  const rank = state.model.ranks[row.rank], name = d3.select(this);
  if (row.kind === "rank") {
    name.attr("title", [rankTitle(rank), ...rank.notes].join("\n"));
    const notes = rank.notes.length ? " · see the notes" : "";
    name.text(`Rank ${rank.rank} `).append("span").text(rankTitle(rank) + notes);
  } else if (row.kind === "events") {
    name.text(rank.events.from.length ? plural(rank.events.from.length, "event") : "no events");
  } else {
    const pool = rank.pools[row.pool];
    const kind = pool.kind ? `: ${pool.kind}` : "";
    name.attr("type", "button").attr("title", `${pool.name}${kind}, device ${pool.device}`);
    name.append("span").text(state.poolName ? `rank ${rank.rank}` : pool.name);
    name.append("span").attr("class", "value");
  }
}

function placeNames(names, visible, scrollTop, state) {
  names.selectAll(":scope > *").data(visible, row => row.id)
    .join(enter => enter.append(row => document.createElement(row.kind === "pool" ? "button" : "div"))
      .attr("class", row => row.kind)
      .style("height", row => `${row.height}px`)
      .each(function (row) { fillName.call(this, row, state); })
      .on("click", row => { if (row.kind === "pool") state.choose(row.rank, row.pool); }))
    .order()
    .style("top", row => `${row.top - scrollTop}px`);
}

function writeValues(names, state) {
  const time = state.shownTime();
  names.selectAll("button.pool")
    .attr("aria-pressed", row => row.rank === state.rank && row.pool === state.pool)
    .select(".value").text(row => poolValue(state.model.ranks[row.rank].pools[row.pool], time));
}

// The first call in which ranks differ: in words above everything, and as a mark on the time line of each of them.
function differingPool(model, index) {
  const number = model.ranks[index].pools.findIndex(pool => pool.name === model.difference.pool);
  return Math.max(0, number);
}

function jumpToDifference(state, rank) {
  const calls = state.model.difference.ranks;
  const times = calls.map(call => call.time).filter(time => time >= 0);
  const [from, to] = times.length ? d3.extent(times) : [0, 0];
  const room = Math.max(3 * (to - from), state.model.end / 50);
  state.showSpan(from - room, to + room);
  const index = Math.max(0, state.model.ranks.findIndex(each => each.rank === rank));
  const call = calls.find(call => call.rank === rank);
  if (!state.model.ranks.length) return;
  state.choose(index, differingPool(state.model, index));
  state.setCursor(call && call.time >= 0 ? call.time : from);
  state.showRow(index, state.pool);
}

function writeDifference(state) {
  const difference = state.model.difference;
  if (!difference || !difference.ranks || !difference.ranks.length) return;
  const section = d3.select("#difference").attr("hidden", null);
  section.select("h2").text(`The ranks' calls differ: call ${formatCount(difference.call)} of pool ${difference.pool}`);
  section.select("ul").selectAll("li").data(difference.ranks).join("li").each(function (call) {
    const item = d3.select(this);
    item.append("button").attr("type", "button").attr("class", "link").text(`rank ${call.rank}`)
      .attr("aria-label", `Show the differing call of rank ${call.rank}`)
      .on("click", () => jumpToDifference(state, call.rank));
    item.append("span").text(`: ${call.text}${call.time >= 0 ? `, at ${formatTime(call.time, state.model.end)}` : ""}`);
  });
}

// The call of a row's rank; only the row of the differing pool, or the rank's own row where that is not shown, has it.
function callOfRow(row, state) {
  const difference = state.model.difference;
  const call = difference.ranks.find(call => call.rank === state.model.ranks[row.rank].rank);
  if (!call || !(call.time >= 0)) return null;
  const pools = state.model.ranks[row.rank].pools;
  const named = pools.findIndex(pool => pool.name === difference.pool);
  return row.kind === (named >= 0 ? "pool" : "rank") && (named < 0 || row.pool === named) ? call : null;
}

function placeMarks(marks, rows, scrollTop, x, width, state) {
  const difference = state.model.difference;
  if (!difference || !difference.ranks) return;
  const found = rows.map(row => ({row, call: callOfRow(row, state)}))
    .filter(({call}) => call && x(call.time) >= 0 && x(call.time) <= width);
  marks.selectAll(".stalk").data(found, each => each.row.id).join("div").attr("class", "stalk")
    .style("left", ({call}) => `${x(call.time)}px`)
    .style("top", ({row}) => `${row.top - scrollTop}px`)
    .style("height", ({row}) => `${row.height}px`);
  marks.selectAll("button.mark").data(found, each => each.row.id)
    .join(enter => enter.append("button").attr("type", "button")
      .on("click", ({call}) => jumpToDifference(state, call.rank)))
    .attr("class", ({call}) => x(call.time) > width - 260 ? "mark left" : "mark")
    .text(({call}) => `≠ call ${formatCount(difference.call)}: ${call.text}`)
    .style("left", ({call}) => `${x(call.time)}px`)
    .style("top", ({row}) => `${row.top - scrollTop + 1}px`);
}

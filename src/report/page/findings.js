// What the report has found by itself: on top, each a way to its place, where the page opens.
function showFinding(state, {rank, pool, time}) {
  state.jump({rank, pool, time});
}

function writeFindings(state) {
  const {findings} = state.model;
  const list = d3.select("#findings").attr("hidden", findings.length ? null : "");
  list.selectAll("li").data(findings).join("li").append("button").attr("type", "button").attr("class", "link")
    .text(finding => finding.text).on("click", finding => showFinding(state, finding));
}

function openAtTrouble(state) {
  const {findings, difference} = state.model;
  const call = difference && difference.ranks && difference.ranks[0];
  const rank = call ? state.model.ranks.findIndex(each => each.rank === call.rank) : -1;
  if (findings.length) showFinding(state, findings[0]);
  else if (rank >= 0) state.jump({rank, pool: differingPool(state.model, rank), time: call.time});
}

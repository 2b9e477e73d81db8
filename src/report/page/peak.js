// Who holds what at the moment of a rank's most memory.
const PEAK_ROWS = 60;

function peakRows(model, rank) {
  const largest = Math.max(1, d3.max(rank.peak.holders || [], holder => holder.bytes) || 1);
  return (rank.peak.holders || []).slice(0, PEAK_ROWS).map(holder => {
    const stack = textOf(model, holder.stack), pool = rank.pools[holder.pool];
    const what = holder.what && !stack.startsWith(holder.what) ? holder.what : "";
    const text = [what, stack].filter(Boolean).join("\n") || "unknown";
    return [
      cell => cell.text(formatBytes(holder.bytes)).append("span").attr("class", "share")
        .style("width", `${100 * holder.bytes / largest}%`),
      holder.blocks < 0 ? "" : formatCount(holder.blocks), pool ? pool.name : "", stackCell(text)];
  });
}

// What pools share: what they reserve at the end, and at most, of what they may.
function writeBudgets(rank) {
  const {name, device, bytes, peak, limit} = filled(rank && rank.budgets, ["name", "device", "bytes", "peak", "limit"]);
  const section = d3.select("#budgets").attr("hidden", name.length ? null : "");
  writeTable(section.select("table"),
    [["budget"], ["device", "number"], ["at the end", "number"], ["at most", "number"], ["of", "number"]],
    name.map((text, place) => [text, device[place], formatBytes(bytes[place]), formatBytes(peak[place]),
      limit[place] === null ? "no limit" : formatBytes(limit[place])]));
}

function writePeak(state, index) {
  const section = d3.select("#peak"), rank = state.model.ranks[index];
  writeBudgets(rank);
  section.select("button").attr("hidden", rank && rank.peak ? null : "");
  section.select("select").property("value", index);
  if (!rank || !rank.peak) {
    section.select("p span").text(rank ? "No peak is known of this rank." : "There is no rank.");
    section.select("table").selectAll("*").remove();
    return;
  }
  section.select("p span").text(`${formatBytes(rank.peak.bytes)} at ${formatTime(rank.peak.time, state.model.end)}`);
  writeTable(section.select("table"), [["bytes", "number"], ["blocks", "number"], ["pool"], ["what, where"]],
    peakRows(state.model, rank));
}

function makePeak(state) {
  const section = d3.select("#peak");
  let shown = state.rank;
  const show = index => {
    shown = index;
    writePeak(state, index);
  };
  section.select("select").on("change", function () { show(+this.value); })
    .selectAll("option").data(state.model.ranks).join("option")
    .attr("value", (rank, index) => index).text(rank => rank.rank);
  section.select("button").on("click", () => {
    const rank = state.model.ranks[shown];
    state.jump({rank: shown, pool: rank.peak.holders && rank.peak.holders.length ? rank.peak.holders[0].pool : -1,
      time: rank.peak.time});
  });
  state.changes.on("choice.peak", () => { if (state.rank !== shown) show(state.rank); });
  show(shown);
}

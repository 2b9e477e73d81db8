// The scale of time above the time lines, in the unit that suits what is shown.
function drawTimeAxis(svg, x, width) {
  const [from, to] = x.domain();
  const [size, unit] = timeUnit(to - from);
  const scale = d3.scaleLinear().domain([from / size, to / size]).range([0, width]);
  const axis = d3.axisTop(scale).ticks(Math.max(2, Math.floor(width / 110))).tickSizeOuter(0);
  const format = scale.tickFormat(Math.max(2, Math.floor(width / 110)));
  svg.attr("width", width);
  svg.selectAll("g").data([0]).join("g").attr("transform", "translate(0,21)")
    .call(axis.tickFormat(value => `${format(value)} ${unit}`))
    .selectAll("text").attr("text-anchor", value => scale(value) > width - 24 ? "end" : "middle");
}

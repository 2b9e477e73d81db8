// Begins the page: the time lines first, since they are what is looked at first.
function fail(error) {
  d3.select("#failure").attr("hidden", null).text(`The model of this report cannot be shown: ${error.message}.`);
  d3.select("main").attr("hidden", "");
}

function begin() {
  listenToDialogs();
  const model = readModel(document.getElementById("model"));
  const state = makeState(model);
  model.ranks.forEach(rank => rank.pools.forEach(pool => { pool.end = model.end; }));
  writeHeader(model);
  writeSeriesLegend(model);
  writeKinds(state);
  writePoolFilter(state);
  writeFindings(state);
  writeDifference(state);
  const lines = makeTimeLines(state);
  lines.fit();
  performance.mark("first picture");
  const map = makeAddressMap(state);
  listenToKeys(state, lines.ordered);
  listenToTheme(() => {
    lines.recolour();
    map.recolour();
  });
  const resized = new ResizeObserver(() => {
    lines.fit();
    map.fit();
  });
  for (const part of ["main", "#rows"]) resized.observe(document.querySelector(part));
  makeDetails(state);
  makePeak(state);
  makeSearch(state);
  openAtTrouble(state);
}

try {
  begin();
} catch (error) {
  fail(error);
}

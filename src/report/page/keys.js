// What keys do to the time lines, wherever the focus is, but not where a key means something else.
const PAN_STEP = 0.1;  // of what is shown

function chooseNextPool(state, distance) {
  const all = [];
  for (const row of layRows(state.model, state.poolName).rows) {
    if (row.kind === "pool") all.push([row.rank, row.pool]);
  }
  if (!all.length) return;
  const now = all.findIndex(([rank, pool]) => rank === state.rank && pool === state.pool);
  const [rank, pool] = all[Math.max(0, Math.min(all.length - 1, now + distance))];
  state.choose(rank, pool);
  state.showRow(rank, pool);
}

function goToNextEvent(state, ordered, distance) {
  const rank = state.shownRank();
  if (!rank) return;
  const {order, from} = ordered(state.rank);
  const place = distance > 0 ? d3.bisectRight(from, state.cursor) : d3.bisectLeft(from, state.cursor) - 1;
  if (place < 0 || place >= order.length) return;
  state.jump({rank: state.rank, time: from[place]});
  d3.select("#spoken").text(describeEvent(state.model, rank, order[place]));
}

function keyAction(state, ordered, event) {
  const pan = share => () => {
    const distance = share * state.span();
    state.showSpan(state.view[0] + distance, state.view[1] + distance);
  };
  const move = distance => () => state.setCursor(state.cursor + distance * state.span() / 200);
  return {
    ArrowLeft: event.shiftKey ? move(-1) : pan(-PAN_STEP),
    ArrowRight: event.shiftKey ? move(1) : pan(PAN_STEP),
    ArrowUp: () => chooseNextPool(state, -1),
    ArrowDown: () => chooseNextPool(state, 1),
    "+": () => zoomBy(state, 1.5),
    "=": () => zoomBy(state, 1.5),
    "-": () => zoomBy(state, 1 / 1.5),
    Home: () => state.showSpan(0, state.model.end),
    n: () => goToNextEvent(state, ordered, 1),
    p: () => goToNextEvent(state, ordered, -1),
    "/": () => document.getElementById("search").focus(),
  }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
}

function listenToKeys(state, ordered) {
  document.addEventListener("keydown", event => {
    const elsewhere = event.target.closest("input, select, textarea, dialog, aside, pre");
    if (elsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = keyAction(state, ordered, event);
    if (!action) return;
    action();
    event.preventDefault();
  });
  d3.select("#zoom-in").on("click", () => zoomBy(state, 2));
  d3.select("#zoom-out").on("click", () => zoomBy(state, 0.5));
  d3.select("#zoom-whole").on("click", () => state.showSpan(0, state.model.end));
}

// What is shown now, and who is told of changes.
//   view       the span of time changed         time       the cursor, or where the pointer hovers
//   choice     the rank, pool or block          rows       which rows there are, or their look
function makeState(model) {
  const changes = d3.dispatch("view", "time", "choice", "rows");
  const state = {
    model,
    changes,
    view: [0, model.end],
    cursor: 0,
    hover: null,
    rank: 0,
    pool: 0,
    block: -1,
    poolName: "",
    hiddenKinds: new Set(),
    shownTime: () => state.hover === null ? state.cursor : state.hover,
    shownRank: () => model.ranks[state.rank] || null,
    shownPool: () => model.ranks[state.rank] && model.ranks[state.rank].pools[state.pool] || null,
    span: () => state.view[1] - state.view[0],
    showSpan: () => {},  // the time lines set these two
    showRow: () => {},
    setCursor(time) {
      state.cursor = Math.max(0, Math.min(model.end, Math.round(time)));
      state.hover = null;
      changes.call("time");
    },
    setHover(time) {
      if (time === state.hover) return;
      state.hover = time;
      changes.call("time");
    },
    choose(rank, pool, block = -1) {
      state.rank = rank;
      state.pool = pool;
      state.block = block;
      changes.call("choice");
    },
    // Shows a moment, or what lasted from `time` to `to`, with some time around it.
    jump({rank, pool = -1, block = -1, time: begin, to = begin}) {
      const time = Math.max(0, begin);
      const length = Math.max(to - time, state.model.end / 200);
      if (time < state.view[0] || to > state.view[1] || length < state.span() / 200) {
        state.showSpan(time - length / 2, time + length * 1.5);
      }
      state.choose(rank, pool >= 0 ? pool : state.rank === rank ? state.pool : 0, block);
      state.setCursor(time);
      state.showRow(state.rank, state.pool);
    },
  };
  const pools = model.ranks.length ? model.ranks[0].pools : [];
  state.pool = Math.max(0, d3.scan(pools, (a, b) => b.blocks.bytes.length - a.blocks.bytes.length) || 0);
  const peak = model.ranks.length && model.ranks[0].peak;
  state.cursor = peak ? peak.time : Math.round(model.end / 2);
  return state;
}

// Where the time lines stand, one under the other: for each rank its name, its pools and its events.
const ROW_HEIGHTS = {rank: 24, pool: 48, events: 30};

function layRows(model, poolName) {
  const rows = [];
  let top = 0;
  const put = (kind, rank, pool) => {
    rows.push({id: `${kind} ${rank} ${pool}`, kind, rank, pool, top, height: ROW_HEIGHTS[kind]});
    top += ROW_HEIGHTS[kind];
  };
  model.ranks.forEach((rank, index) => {
    put("rank", index, -1);
    rank.pools.forEach((pool, number) => {
      if (!poolName || pool.name === poolName) put("pool", index, number);
    });
    put("events", index, -1);
  });
  return {rows, height: top};
}

function visibleRows(rows, top, height) {
  const first = Math.max(0, d3.bisector(row => row.top).right(rows, top) - 1);
  const end = d3.bisector(row => row.top).left(rows, top + height);
  return rows.slice(first, end);
}

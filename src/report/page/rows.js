// Where the time lines stand, one under the other: for each rank its name, its pools and its events. Of a chosen pool
// those of all ranks stand side by side, the one first that differs most from the median.
const ROW_HEIGHTS = {rank: 24, pool: 48, events: 30};

function layRows(model, poolName) {
  const rows = [];
  let top = 0;
  const put = (kind, rank, pool, height = ROW_HEIGHTS[kind]) => {
    rows.push({id: `${kind} ${rank} ${pool} ${poolName}`, kind, rank, pool, top, height});
    top += height;
  };
  if (poolName) {
    const found = byDifference(model, poolName);
    const height = Math.max(ROW_HEIGHTS.pool, Math.min(2 * ROW_HEIGHTS.pool, Math.floor(480 / found.length)));
    found.forEach(({rank, pool}) => put("pool", rank, pool, height));
    return {rows, height: top};
  }
  model.ranks.forEach((rank, index) => {
    put("rank", index, -1);
    rank.pools.forEach((pool, number) => put("pool", index, number));
    put("events", index, -1);
  });
  return {rows, height: top};
}

function byDifference(model, poolName) {
  const found = [];
  model.ranks.forEach((rank, index) => rank.pools.forEach((pool, number) => {
    if (pool.name === poolName) found.push({rank: index, pool: number, most: d3.max(pool.bytes.allocated) || 0});
  }));
  const median = d3.median(found, each => each.most);
  return found.sort((a, b) => Math.abs(b.most - median) - Math.abs(a.most - median) || a.rank - b.rank);
}

function visibleRows(rows, top, height) {
  const first = Math.max(0, d3.bisector(row => row.top).right(rows, top) - 1);
  const end = d3.bisector(row => row.top).left(rows, top + height);
  return rows.slice(first, end);
}

// A pool's memory at a moment: its segments, their blocks in the order of addresses, and the gaps between them.
// The order by segment and offset is made once; after that a moment costs one look at each block's two times.
function orderBlocks(pool) {
  const {segment, offset, from, to} = pool.blocks;
  const buckets = new Map();
  segment.forEach((owner, index) => {
    if (!buckets.has(owner)) buckets.set(owner, []);
    buckets.get(owner).push(index);
  });
  const order = new Uint32Array(segment.length);
  let end = 0;
  for (const owner of Array.from(buckets.keys()).sort((a, b) => a - b)) {
    for (const index of buckets.get(owner).sort((a, b) => offset[a] - offset[b])) order[end++] = index;
  }
  return {
    order,
    from: Float64Array.from(order, index => from[index]),
    to: Float64Array.from(order, index => to[index] < 0 ? Infinity : to[index]),
  };
}

const orderedBlocks = new WeakMap();

function blocksAt(pool, time) {
  if (!orderedBlocks.has(pool)) orderedBlocks.set(pool, orderBlocks(pool));
  const {order, from, to} = orderedBlocks.get(pool);
  const alive = [];
  for (let place = 0; place < order.length; ++place) {
    if (from[place] <= time && time < to[place]) alive.push(order[place]);
  }
  return alive;
}

function gapsOf(segment, bytes, blocks, columns) {
  const gaps = [];
  let end = 0;
  for (const block of blocks) {
    if (columns.offset[block] > end) gaps.push({segment, offset: end, bytes: columns.offset[block] - end});
    end = Math.max(end, columns.offset[block] + columns.bytes[block]);
  }
  if (bytes > end) gaps.push({segment, offset: end, bytes: bytes - end});
  return gaps;
}

function memoryAt(pool, time) {
  const bySegment = new Map();
  for (const block of blocksAt(pool, time)) {
    const owner = pool.blocks.segment[block];
    if (!bySegment.has(owner)) bySegment.set(owner, []);
    bySegment.get(owner).push(block);
  }
  const registrations = new Map();
  pool.registrations.segment.forEach((segment, index) => {
    if (!exists(pool.registrations, index, time)) return;
    registrations.set(segment, (registrations.get(segment) || []).concat(index));
  });
  const segments = [];
  let largest = null, gapCount = 0, free = 0;
  pool.segments.bytes.forEach((bytes, index) => {
    if (!exists(pool.segments, index, time)) return;
    const blocks = bySegment.get(index) || [];
    const gaps = gapsOf(index, bytes, blocks, pool.blocks);
    for (const gap of gaps) {
      ++gapCount;
      free += gap.bytes;
      if (!largest || gap.bytes > largest.bytes) largest = gap;
    }
    segments.push({index, bytes, address: pool.segments.address[index] || "", blocks, gaps,
      registrations: registrations.get(index) || NOTHING});
  });
  return {segments, largest, gapCount, free};
}

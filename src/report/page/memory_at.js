// A pool's memory at a moment: its segments, their blocks in the order of addresses, and the gaps between them.
// Blocks belong to memory by their addresses: pages of an expandable pool come and go under blocks that stay. The order
// by address is made once; after that a moment costs one look at each block's two times.
const placed = new WeakMap();

// Where segments and blocks begin, counted from the pool's lowest address: exact in a number, unlike an address.
function placesOf(pool) {
  if (placed.has(pool)) return placed.get(pool);
  const {address, bytes} = pool.segments;
  const known = address.every(text => /^0x[0-9a-f]+$/.test(text));
  const all = known ? address.map(text => BigInt(text)) : [];
  const lowest = all.reduce((least, each) => each < least ? each : least, all[0] || 0n);
  let end = 0;
  const segments = Float64Array.from(bytes, (size, index) => {
    const start = known ? Number(all[index] - lowest) : end;
    end += size + 1;
    return start;
  });
  const blocks = Float64Array.from(pool.blocks.segment, (owner, index) => {
    const offset = pool.blocks.offset[index];
    return owner >= 0 ? segments[owner] + offset : offset - Number(lowest);
  });
  placed.set(pool, {segments, blocks});
  return placed.get(pool);
}

function orderBlocks(pool) {
  const {from, to} = pool.blocks;
  const starts = placesOf(pool).blocks;
  const order = Uint32Array.from(starts, (_, index) => index).sort((a, b) => starts[a] - starts[b]);
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

// The ranges of memory at a moment. Pages of an expandable pool that touch are one.
function rangesAt(pool, time) {
  const starts = placesOf(pool).segments;
  const {bytes, address} = pool.segments;
  const live = d3.range(bytes.length).filter(index => exists(pool.segments, index, time));
  live.sort((a, b) => starts[a] - starts[b]);
  const ranges = [];
  for (const index of live) {
    const last = ranges[ranges.length - 1];
    if (last && last.start + last.bytes === starts[index] && pool.kind.includes("expandable")) {
      last.bytes += bytes[index];
    } else {
      ranges.push({index, start: starts[index], bytes: bytes[index], address: address[index] || "", blocks: []});
    }
  }
  return ranges;
}

function gapsOf(range, starts, sizes) {
  const gaps = [];
  let end = 0;
  const add = to => to > end && gaps.push({segment: range.index, offset: end, bytes: to - end});
  for (const block of range.blocks) {
    add(starts[block] - range.start);
    end = Math.max(end, starts[block] - range.start + sizes[block]);
  }
  add(range.bytes);
  return gaps;
}

function memoryAt(pool, time) {
  const starts = placesOf(pool).blocks;
  const segments = rangesAt(pool, time);
  let place = 0;
  for (const block of blocksAt(pool, time)) {
    while (place < segments.length && segments[place].start + segments[place].bytes <= starts[block]) ++place;
    if (place === segments.length) break;
    if (starts[block] >= segments[place].start) segments[place].blocks.push(block);
  }
  const registrations = new Map();
  pool.registrations.segment.forEach((segment, index) => {
    if (!exists(pool.registrations, index, time)) return;
    registrations.set(segment, (registrations.get(segment) || []).concat(index));
  });
  let largest = null, gapCount = 0, free = 0;
  for (const range of segments) {
    range.gaps = gapsOf(range, starts, pool.blocks.bytes);
    range.registrations = registrations.get(range.index) || NOTHING;
    range.offsetOf = block => starts[block] - range.start;
    for (const gap of range.gaps) {
      ++gapCount;
      free += gap.bytes;
      if (!largest || gap.bytes > largest.bytes) largest = gap;
    }
  }
  return {segments, largest, gapCount, free};
}

// Whether the block begins in the segment.
function lies(block, segment) {
  const offset = segment.offsetOf(block);
  return offset >= 0 && offset < segment.bytes;
}

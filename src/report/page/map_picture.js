// One segment as a row: registrations as strips above, blocks and gaps below, all by their addresses.
const MAP_ROWS = [30, 54];  // the least and the most height of one
const MAP_NAMES = 208;  // pixels of address and size at the left
const LEAST_SHARE = 0.04;  // of the width: a small segment stays visible beside a large one

function segmentWidth(segment, map) {
  const room = Math.max(10, map.width - MAP_NAMES - 12);
  return map.sameScale ? room * Math.max(LEAST_SHARE, segment.bytes / map.largestSegment) : room;
}


function drawSegmentName(context, segment, y, middle, colours) {
  context.textBaseline = "middle";
  context.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
  context.fillStyle = colours.faint;
  context.fillText(segment.address, 16, middle);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.text;
  context.textAlign = "right";
  context.fillText(formatBytes(segment.bytes), MAP_NAMES - 10, middle);
  context.textAlign = "left";
}

function drawRegistrations(context, segment, pool, left, width, y, colours) {
  segment.registrations.slice(0, 3).forEach((index, number) => {
    context.fillStyle = pool.registrations.kind[index] === "buffer" ? colours.scope : colours.registration;
    context.fillRect(left, y + 1 + 2 * number, width, segment.registrations.length > 1 ? 1.5 : 4);
  });
}

// Blocks that fall into one pixel are one bar: a picture cannot tell them apart.
function drawBlocks(context, segment, map, left, scale, y) {
  const {bytes} = map.pool.blocks;
  let drawnTo = -1;
  for (const block of segment.blocks) {
    const begin = left + segment.offsetOf(block) * scale;
    const end = begin + bytes[block] * scale;
    if (end < drawnTo + 0.4) continue;
    context.fillStyle = map.colourOf(block);
    context.fillRect(begin, y + 8, Math.max(0.8, end - begin - (end - begin > 3 ? 0.7 : 0)), map.rowHeight - 12);
    drawnTo = end;
  }
}

function drawLargestGap(context, segment, map, left, scale, y, colours) {
  const gap = map.memory.largest;
  if (!gap || gap.segment !== segment.index) return;
  const begin = left + gap.offset * scale, width = Math.max(2, gap.bytes * scale);
  context.strokeStyle = colours.gap;
  context.lineWidth = 2;
  context.strokeRect(begin + 1, y + 9, Math.max(1, width - 2), map.rowHeight - 14);
  const text = `largest gap ${formatBytes(gap.bytes)}`;
  context.font = "11px system-ui, sans-serif";
  if (width < context.measureText(text).width + 10) return;
  context.fillStyle = colours.text;
  context.fillText(text, begin + 6, y + 2.5 + map.rowHeight / 2);
}

function drawSegment(context, segment, map, y, colours) {
  const width = segmentWidth(segment, map), scale = width / segment.bytes;
  const thick = map.rowHeight - 12;
  drawSegmentName(context, segment, y, y + 8 + thick / 2, colours);
  context.fillStyle = colours.free;
  context.fillRect(MAP_NAMES, y + 8, width, thick);
  drawRegistrations(context, segment, map.pool, MAP_NAMES, width, y, colours);
  drawBlocks(context, segment, map, MAP_NAMES, scale, y);
  drawLargestGap(context, segment, map, MAP_NAMES, scale, y, colours);
  if (map.asleep) {
    context.fillStyle = hatch(context, colours.asleep);
    context.fillRect(MAP_NAMES, y + 8, width, thick);
  }
  const {blocks} = map.pool;
  if (map.block >= 0 && lies(map.block, segment) && exists(blocks, map.block, map.time)) {
    const begin = MAP_NAMES + segment.offsetOf(map.block) * scale;
    context.strokeStyle = colours.text;
    context.lineWidth = 2.5;
    context.strokeRect(begin - 1, y + 6, Math.max(3, map.pool.blocks.bytes[map.block] * scale + 1), thick + 4);
  }
}

// What lies under a point of the map: a block's index, or -1 for free memory; null outside of all segments.
function memoryUnder(map, px, y) {
  const segment = map.memory && map.memory.segments[Math.floor(y / map.rowHeight)];
  if (!segment) return null;
  const width = segmentWidth(segment, map), scale = width / segment.bytes;
  const byte = (px - MAP_NAMES) / scale, slack = 1 / scale;
  if (byte < -slack || byte > segment.bytes) return null;
  const {bytes} = map.pool.blocks;
  const place = d3.bisector(segment.offsetOf).right(segment.blocks, byte + slack) - 1;
  const block = place < 0 ? -1 : segment.blocks[place];
  const gap = segment.gaps.find(gap => gap.offset <= byte && byte < gap.offset + gap.bytes);
  return {segment, gap, block: block >= 0 && byte <= segment.offsetOf(block) + bytes[block] + slack ? block : -1};
}

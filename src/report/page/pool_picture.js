// One pool over time: what it has reserved, of that what is allocated, and above it what caches keep.
// `values(point)` is the height of a step function; its picture keeps the highest of the points of one pixel.
function traceSteps(context, times, values, span, x, y, end) {
  const first = Math.max(0, pointAt(times, span[0]));
  const last = d3.bisectLeft(times, span[1]);
  if (first >= last) return false;
  let column = Math.max(-2, x(times[first])), height = values(first);
  context.moveTo(column, y(height));
  for (let point = first + 1; point < last; ++point) {
    const next = x(times[point]), value = values(point);
    if (next - column < 0.7) {
      if (value > height) context.lineTo(column, y(height = value));
      continue;
    }
    context.lineTo(next, y(height));
    context.lineTo(next, y(value));
    column = next;
    height = value;
  }
  context.lineTo(Math.max(column, Math.min(end, x(span[1]))), y(height));
  return true;
}

function fillSteps(context, pool, values, place, colour) {
  const {span, x, y, end} = place;
  context.beginPath();
  if (!traceSteps(context, pool.bytes.time, values, span, x, y, end)) return;
  context.lineTo(Math.min(end, x(span[1])), y(0));
  context.lineTo(Math.max(-2, x(pool.bytes.time[Math.max(0, pointAt(pool.bytes.time, span[0]))])), y(0));
  context.closePath();
  context.fillStyle = colour;
  context.fill();
}

function drawSpans(context, columns, x, top, height, width, end) {
  columns.from.forEach((from, index) => {
    const left = x(from), right = columns.to[index] < 0 ? end : x(columns.to[index]);
    if (right >= 0 && left <= width) context.fillRect(left, top, Math.max(1, right - left), height);
  });
}

function drawPool(context, pool, largest, view, x, top, height, width, colours) {
  const end = pool.to < 0 ? x(view.end) : x(pool.to);
  const span = [Math.max(view.span[0], pool.from), pool.to < 0 ? view.span[1] : Math.min(view.span[1], pool.to)];
  if (span[0] > span[1]) return;
  const bottom = top + height - 2, room = height - 8;
  const y = value => bottom - room * Math.min(1, value / largest);
  const place = {span, x, y, end};
  const bytes = pool.bytes;
  fillSteps(context, pool, point => bytes.reserved[point] || 0, place, colours.reserved);
  fillSteps(context, pool, point => (bytes.allocated[point] || 0) + (bytes.cached[point] || 0), place, colours.cached);
  fillSteps(context, pool, point => bytes.allocated[point] || 0, place, colours.allocated);
  const line = (values, colour, dashes) => {
    context.beginPath();
    if (!traceSteps(context, bytes.time, values, span, x, y, end)) return;
    context.setLineDash(dashes);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.globalAlpha = 0.7;
    context.stroke();
    context.globalAlpha = 1;
    context.setLineDash([]);
  };
  line(point => bytes.reserved[point] || 0, colours["reserved-edge"], []);
  // Dashes are legible where points are further apart than they are long.
  const points = d3.bisectLeft(bytes.time, span[1]) - d3.bisectLeft(bytes.time, span[0]);
  if (points < width / 3) line(point => bytes.requested[point] || 0, colours.requested, [3, 2]);
  context.fillStyle = view.hatch;
  drawSpans(context, pool.asleep, x, top + 4, height - 6, width, end);
}

// The events of one rank: what lasts long above, calls below; a failed one has a cross.
const UPPER_KINDS = new Set(["scope", "capture", "sleep", "wake"]);
const LEAST_EVENT = 3;  // pixels

// Events in the order in which they begin, with the latest end up to each: what began before a view may still last.
function orderEvents(events) {
  const order = Uint32Array.from(d3.range(events.from.length));
  if (events.from.some((from, index) => index && from < events.from[index - 1])) {
    order.sort((a, b) => events.from[a] - events.from[b]);
  }
  const from = Float64Array.from(order, index => events.from[index]);
  const latest = new Float64Array(order.length);
  let last = -1;
  order.forEach((index, place) => {
    const open = events.to[index] < 0 && UPPER_KINDS.has(events.kind[index]);
    last = Math.max(last, open ? Infinity : events.from[index], events.to[index]);
    latest[place] = last;
  });
  return {order, from, latest};
}

function eventsBetween(ordered, span) {
  return [d3.bisectLeft(ordered.latest, span[0]), d3.bisectRight(ordered.from, span[1])];
}

function eventPlace(events, index, x, end) {
  const left = x(events.from[index]);
  const to = events.to[index];
  const right = to < 0 ? (UPPER_KINDS.has(events.kind[index]) ? end : left) : x(to);
  return {left, right, width: Math.max(LEAST_EVENT, right - left), upper: UPPER_KINDS.has(events.kind[index])};
}

function drawEvent(context, place, y, colour, failed, text) {
  context.fillStyle = colour;
  const left = place.right - place.left < LEAST_EVENT ? place.left - 1 : place.left;
  context.fillRect(left, y, place.width, 10);
  if (failed) {
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const sign of [-1, 1]) {
      context.moveTo(place.left - 4, y + 5 - 5 * sign);
      context.lineTo(place.left + 4, y + 5 + 5 * sign);
    }
    context.stroke();
  }
  if (place.width > 60) {
    context.save();
    context.beginPath();
    context.rect(Math.max(0, place.left), y, place.right - Math.max(0, place.left) - 2, 10);
    context.clip();
    context.fillStyle = "#10141a";
    context.fillText(text, Math.max(0, place.left) + 3, y + 5.5);
    context.restore();
  }
}

function drawEvents(context, events, ordered, view, x, top, width, colours, hidden) {
  const [first, end] = eventsBetween(ordered, view.span);
  const drawnTo = new Map();
  context.font = "9px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (let number = first; number < end; ++number) {
    const index = ordered.order[number], kind = events.kind[index];
    if (hidden.has(kind)) continue;
    const place = eventPlace(events, index, x, x(view.end));
    if (place.right < 0 || place.left > width) continue;
    const failed = events.failed[index] === 1;
    // What would lie in a pixel that this kind has filled already.
    if (!failed && place.right <= (drawnTo.get(kind) || -Infinity)) continue;
    drawnTo.set(kind, place.left + place.width);
    const y = top + (place.upper ? 3 : 16);
    drawEvent(context, place, y, colours[kind] || colours.faint, failed, events.text[index] || kind);
  }
}

// The event under a point, newest first; -1 where there is none.
function eventAt(events, ordered, view, x, px, upper, hidden) {
  const [first, end] = eventsBetween(ordered, view.span);
  for (let number = end - 1; number >= first; --number) {
    const index = ordered.order[number];
    const place = eventPlace(events, index, x, x(view.end));
    if (place.upper === upper && !hidden.has(events.kind[index]) && px >= place.left - 2 &&
        px <= place.left + place.width + 1) {
      return index;
    }
  }
  return -1;
}

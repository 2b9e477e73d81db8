// The model as the rest of the page may rely on it: what a recording left out is empty, never missing.
const NOTHING = Object.freeze([]);

function filled(columns, names) {
  const whole = {};
  for (const name of names) whole[name] = columns && Array.isArray(columns[name]) ? columns[name] : NOTHING;
  return whole;
}

const KINDS_OF_BYTES = ["reserved", "allocated", "requested", "cached", "pending"];

function readPool(pool, index) {
  return Object.assign({}, pool, {
    name: pool.name || `pool ${index}`,
    from: pool.from > 0 ? pool.from : 0,
    to: pool.to >= 0 ? pool.to : -1,
    bytes: filled(pool.bytes, ["time", ...KINDS_OF_BYTES]),
    segments: filled(pool.segments, ["address", "bytes", "from", "to"]),
    asleep: filled(pool.asleep, ["from", "to"]),
    registrations: filled(pool.registrations, ["segment", "communicator", "kind", "from", "to", "cost"]),
    blocks: filled(pool.blocks, ["segment", "offset", "bytes", "requested", "from", "to", "stream", "stack"]),
    left_out: pool.left_out || {blocks: 0, bytes: 0},
    small: filled(pool.small, ["bytes", "time", "served", "held"]),
  });
}

function readRank(rank, index) {
  return Object.assign({}, rank, {
    rank: Number.isInteger(rank.rank) ? rank.rank : index,
    notes: rank.notes || NOTHING,
    begin: rank.begin > 0 ? rank.begin : 0,
    pools: (rank.pools || NOTHING).map(readPool),
    events: filled(rank.events, ["kind", "pool", "from", "to", "text", "waited_for", "failed"]),
    peak: rank.peak && rank.peak.time >= 0 ? rank.peak : null,
  });
}

// Frees the text: it is as large as the model.
function readModel(element) {
  const text = element.textContent;
  element.textContent = "";
  const model = JSON.parse(text);
  if (model.version !== 1) throw new Error(`its version is ${model.version}, and this page reads version 1`);
  model.ranks = (model.ranks || []).map(readRank);
  model.texts = model.texts || [];
  model.notes = model.notes || [];
  model.end = Math.max(1, model.end || 0);
  model.difference = model.difference || null;
  model.findings = model.findings || [];
  return model;
}

// The largest value of each pool's name over all ranks: the same height means the same memory everywhere.
function largestByName(model) {
  const largest = new Map();
  for (const rank of model.ranks) {
    for (const pool of rank.pools) {
      const most = Math.max(d3.max(pool.bytes.reserved) || 0, d3.max(pool.bytes.allocated) || 0);
      largest.set(pool.name, Math.max(largest.get(pool.name) || 1, most));
    }
  }
  return largest;
}

function textOf(model, index) {
  return index >= 0 && index < model.texts.length ? String(model.texts[index]) : "";
}

// The newest point of a step function at a time; -1 before the first.
function pointAt(times, time) {
  return d3.bisectRight(times, time) - 1;
}

function bytesAt(pool, time) {
  const known = pool.from <= time && (pool.to < 0 || time < pool.to);
  const point = known ? pointAt(pool.bytes.time, time) : -1;
  const value = name => point < 0 ? 0 : pool.bytes[name][point] || 0;
  return KINDS_OF_BYTES.reduce((bytes, name) => Object.assign(bytes, {[name]: value(name)}), {});
}

function exists(columns, index, time) {
  return columns.from[index] <= time && (columns.to[index] < 0 || time < columns.to[index]);
}

function asleepSince(pool, time) {
  const index = pointAt(pool.asleep.from, time);
  return index >= 0 && exists(pool.asleep, index, time) ? Math.max(0, pool.asleep.from[index]) : -1;
}

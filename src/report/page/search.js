// What a search finds. A query is a size ("4 MiB", ">1MiB", "<= 512 B") or a text of names, stacks and events.
const SIZE = /^(<=|>=|<|>|=)?\s*([\d][\d,]*(?:\.\d+)?)\s*(bytes?|[kmgtp]?i?b?)$/i;
const MOST_HITS = 200;

// A function of bytes; null for a query that is no size. A number alone is a name as well as a size is.
function parseSize(query) {
  const match = SIZE.exec(query);
  if (!match || !(match[1] || match[3])) return null;
  const letter = match[3].toLowerCase()[0] || "b";
  const power = "bkmgtp".indexOf(letter);
  const bytes = +match[2].replace(/,/g, "") * 1024 ** Math.max(0, power);
  const written = formatBytes(bytes);
  switch (match[1]) {
    case "<": return value => value < bytes;
    case "<=": return value => value <= bytes;
    case ">": return value => value > bytes;
    case ">=": return value => value >= bytes;
    default: return value => value === bytes || (power > 0 && formatBytes(value) === written);
  }
}

function makeHits() {
  return {list: [], counts: {pool: 0, block: 0, event: 0, holder: 0}};
}

// Hits beyond the most that are listed are counted: a list nobody reads to its end must not take a second.
function note(hits, kind, hit) {
  if (++hits.counts[kind] <= MOST_HITS) hits.list.push(Object.assign({kind}, hit));
}

function findBlocks(hits, rank, pool, columns, matches) {
  for (let block = 0; block < columns.bytes.length; ++block) {
    if (matches(block)) note(hits, "block", {rank, pool, block, time: columns.from[block], to: columns.to[block]});
  }
}

function searchBySize(model, fits) {
  const hits = makeHits();
  model.ranks.forEach((rank, index) => rank.pools.forEach((pool, number) => {
    const {bytes, requested} = pool.blocks;
    findBlocks(hits, index, number, pool.blocks, block => fits(bytes[block]) || fits(requested[block]));
  }));
  return hits;
}

function searchEvents(hits, rank, index, has) {
  rank.events.kind.forEach((kind, event) => {
    if (!has(`${kind} ${rank.events.text[event] || ""}`)) return;
    note(hits, "event", {rank: index, pool: rank.events.pool[event], event, time: rank.events.from[event],
      to: rank.events.to[event]});
  });
}

function searchHolders(hits, rank, index, has, texts) {
  if (!rank.peak) return;
  for (const holder of rank.peak.holders || NOTHING) {
    if (!has(holder.what || "") && !texts.has(holder.stack)) continue;
    note(hits, "holder", {rank: index, pool: holder.pool, holder, time: rank.peak.time, to: rank.peak.time});
  }
}

function searchByText(model, query) {
  const hits = makeHits(), wanted = query.toLowerCase();
  const has = text => text.toLowerCase().includes(wanted);
  const texts = new Set();
  model.texts.forEach((text, index) => { if (has(String(text))) texts.add(index); });
  model.ranks.forEach((rank, index) => {
    const wholeRank = has(`rank ${rank.rank}`) || has(rankTitle(rank));
    rank.pools.forEach((pool, number) => {
      if (wholeRank || has(pool.name)) note(hits, "pool", {rank: index, pool: number, time: pool.from, to: pool.to});
    });
  });
  model.ranks.forEach((rank, index) => {
    searchEvents(hits, rank, index, has);
    rank.pools.forEach((pool, number) => {
      const {stack, stream} = pool.blocks;
      const matches = block => texts.has(stack[block]) || texts.has(stream[block]);
      if (texts.size) findBlocks(hits, index, number, pool.blocks, matches);
    });
  });
  model.ranks.forEach((rank, index) => searchHolders(hits, rank, index, has, texts));
  return hits;
}

function search(model, query) {
  const fits = parseSize(query);
  return fits ? searchBySize(model, fits) : searchByText(model, query);
}

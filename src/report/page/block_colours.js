// The colours of a pool's blocks: what most bytes belong to comes first. Others have a pale one of the same colours, so
// that neighbours differ, and what is unknown is grey.
const PALE = "80";  // half of it shines through
const SIZE_NAMES = [[4096, "up to 4 KiB"], [65536, "up to 64 KiB"], [1 << 20, "up to 1 MiB"],
  [16 << 20, "up to 16 MiB"], [256 << 20, "up to 256 MiB"], [Infinity, "above 256 MiB"]];

function blockKey(pool, block, by) {
  if (by === "bytes") return SIZE_NAMES.findIndex(([most]) => pool.blocks.bytes[block] <= most);
  const key = pool.blocks[by][block];
  return key === undefined ? -1 : key;
}

const madeColours = new WeakMap();

function blockColours(model, pool, by) {
  if (!madeColours.has(pool)) madeColours.set(pool, {});
  const made = madeColours.get(pool);
  if (made[by]) return made[by];
  const bytes = new Map();
  pool.blocks.bytes.forEach((size, block) => {
    const key = blockKey(pool, block, by);
    bytes.set(key, (bytes.get(key) || 0) + size);
  });
  const keys = Array.from(bytes.keys()).filter(key => key >= 0).sort((a, b) => bytes.get(b) - bytes.get(a));
  if (by === "bytes") keys.sort((a, b) => a - b);
  const rest = BLOCK_COLOURS.length - 1;
  const colours = new Map(keys.map((key, place) =>
    [key, BLOCK_COLOURS[place % rest] + (place < rest ? "" : PALE)]));
  const name = key => by === "bytes" ? SIZE_NAMES[key][1] : placeOf(textOf(model, key));
  const legend = keys.slice(0, rest).map(key => [name(key), colours.get(key)]);
  if (keys.length > rest) legend.push([`${formatCount(keys.length - rest)} others`, "var(--others)"]);
  if (bytes.size > keys.length) legend.push(["unknown", BLOCK_COLOURS[rest]]);
  made[by] = {colourOf: block => colours.get(blockKey(pool, block, by)) || BLOCK_COLOURS[rest], legend};
  return made[by];
}

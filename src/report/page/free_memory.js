// Why free memory does not serve: sentences about a pool at a moment.
function freeMemorySentences(pool, memory, time) {
  const bytes = bytesAt(pool, time);
  if (pool.from > time) return [["", "The pool is not made yet at this moment."]];
  if (pool.to >= 0 && pool.to <= time) return [["", "The pool is closed at this moment."]];
  const asleep = asleepSince(pool, time);
  if (asleep >= 0) {
    const since = formatTime(asleep, pool.end);
    return [["asleep", ` since ${since}: its physical memory went back, so nothing of it can serve.`]];
  }
  const parts = [];
  if (!memory.segments.length) {
    parts.push(["", bytes.reserved ? `Of ${formatBytes(bytes.reserved)} reserved no segment is recorded. ` :
      "The pool has no memory at this moment: any request makes it grow. "]);
  } else if (!memory.gapCount) {
    parts.push(["0 B", " free: every byte of the segments is in a block. "]);
  } else {
    parts.push([formatBytes(memory.free), " free in "], [plural(memory.gapCount, "gap"), "; the largest is "],
      [formatBytes(memory.largest.bytes), ": a larger request finds no place in it, however much is free. "]);
  }
  if (bytes.cached) {
    parts.push([formatBytes(bytes.cached), " of it lies in threads' caches, which serve their own threads and streams. "]);
  }
  if (bytes.pending) {
    parts.push([formatBytes(bytes.pending), " of it is pending: freed, and some stream, rank or graph may still use it. "]);
  }
  if (pool.left_out.blocks) {
    parts.push([plural(pool.left_out.blocks, "smaller block"),
      ` (${formatBytes(pool.left_out.bytes)} in all) are not drawn one by one; some of what looks free is theirs.`]);
  }
  return parts;
}

function writeFreeMemory(element, parts) {
  element.selectAll("*").remove();
  for (const [strong, rest] of parts) {
    if (strong) element.append("strong").text(strong);
    element.append("span").text(rest);
  }
}

// How bytes, times and counts are written.
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const TIME_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const formatCount = d3.format(",");

function formatBytes(bytes) {
  if (!(bytes >= 0)) return "unknown";
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    ++unit;
  }
  const digits = Number.isInteger(value) || value >= 100 ? 0 : value < 10 ? 2 : 1;
  return `${value.toFixed(digits)} ${BYTE_UNITS[unit]}`;
}

function timeUnit(span) {
  return TIME_UNITS.find(([nanoseconds]) => span >= nanoseconds) || TIME_UNITS[TIME_UNITS.length - 1];
}

function formatDuration(nanoseconds) {
  const [size, name] = timeUnit(Math.abs(nanoseconds));
  return `${+(nanoseconds / size).toPrecision(4)} ${name}`;
}

// As exactly as a picture of this span can tell.
function formatTime(time, span) {
  const [size, name] = timeUnit(span);
  const digits = size === 1 ? 0 : Math.max(0, Math.min(6, Math.ceil(Math.log10(2000 * size / span))));
  return `${d3.format(`,.${digits}f`)(time / size)} ${name}`;
}

// Code that is not the program's: what is installed, and commpool and torch wherever they lie.
const OF_OTHERS = new RegExp("/(site|dist)-packages/|/lib(64)?/python3|/commpool/(torch/)?\\w+\\.py:|" +
  "/torch/(_\\w+|nn|autograd|optim|distributed|utils|cuda|fx|functional)[/.]");

// Of a stack the line of the program's own code that is nearest, with the file and its folder: the head of a path tells
// least.
function placeOf(stack) {
  const lines = stack.split("\n");
  const line = lines.find(each => !OF_OTHERS.test(each)) || lines[0];
  const parts = line.split("/");
  return parts.length > 3 ? `…/${parts.slice(-2).join("/")}` : line;
}

function plural(count, word) {
  return `${formatCount(count)} ${word}${count === 1 ? "" : "s"}`;
}

// The style's colours, as a canvas takes them.
const KINDS = ["agreement", "growth", "registration", "search", "capture", "scope", "sleep", "wake", "difference"];
const BLOCK_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a929e"];
const SHOWN_COLOURS = ["line", "text", "faint", "chosen", "allocated", "cached", "reserved", "reserved-edge",
  "requested", "asleep", "free", "gap"].concat(KINDS);

function readColours() {
  const probe = document.body.appendChild(document.createElement("span"));
  const colours = {};
  for (const name of SHOWN_COLOURS) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
}

// Lines that say "not there": asleep, or before the recording begins.
function hatch(context, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const drawing = tile.getContext("2d");
  drawing.strokeStyle = colour;
  drawing.lineWidth = 1.2;
  drawing.beginPath();
  for (const start of [-8, 0, 8]) {
    drawing.moveTo(start, 8);
    drawing.lineTo(start + 8, 0);
  }
  drawing.stroke();
  return context.createPattern(tile, "repeat");
}

// Zoom and pan of all time lines together: what D3's zoom reads from wheel and drag becomes a span of time.
const LEAST_SPAN = 20;  // nanoseconds

function makeTimeZoom(state, canvas) {
  const selection = d3.select(canvas);
  let width = 1;
  const whole = () => d3.scaleLinear().domain([0, state.model.end]).range([0, width]);
  const zoom = d3.zoom()
    .scaleExtent([1, Math.max(1, state.model.end / LEAST_SPAN)])
    .filter(() => !d3.event.button && !(d3.event.type === "wheel" && d3.event.shiftKey))
    .on("zoom", () => {
      state.view = d3.event.transform.rescaleX(whole()).domain();
      state.changes.call("view");
    });
  selection.call(zoom).on("dblclick.zoom", null);
  canvas.addEventListener("wheel", event => {
    const distance = event.shiftKey ? event.deltaX + event.deltaY : event.deltaX;
    if (!event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    state.showSpan(state.view[0] + distance * state.span() / width, state.view[1] + distance * state.span() / width);
  }, {passive: false});

  state.showSpan = (from, to) => {
    const length = Math.max(Math.min(LEAST_SPAN, state.model.end), Math.min(state.model.end, to - from));
    const start = Math.max(0, Math.min(state.model.end - length, from));
    const factor = state.model.end / length;
    selection.call(zoom.transform, d3.zoomIdentity.translate(-whole()(start) * factor, 0).scale(factor));
  };
  return {
    // The same span of time stays shown.
    resize(newWidth) {
      width = Math.max(1, newWidth);
      zoom.translateExtent([[0, -Infinity], [width, Infinity]]).extent([[0, 0], [width, 1]]);
      state.showSpan(state.view[0], state.view[1]);
    },
    x: () => d3.scaleLinear().domain(state.view).range([0, width]),
  };
}

// Zooms by a factor around the cursor where it is shown, else around the middle.
function zoomBy(state, factor) {
  const [from, to] = state.view;
  const inside = state.cursor >= from && state.cursor <= to;
  const middle = inside ? state.cursor : (from + to) / 2;
  state.showSpan(middle - (middle - from) / factor, middle + (to - middle) / factor);
}

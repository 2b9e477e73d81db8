// A canvas in a box that scrolls: as large as what is seen, so that its cost does not grow with what there is.
function makeScrollCanvas(element, draw) {
  const view = element.appendChild(document.createElement("div"));
  view.className = "view";
  const canvas = view.appendChild(document.createElement("canvas"));
  canvas.setAttribute("aria-hidden", "true");
  const rest = element.appendChild(document.createElement("div"));
  const context = canvas.getContext("2d");
  let asked = false, total = 0;
  const self = {
    element, view, canvas, width: 0, height: 0,
    scrollTop: () => element.scrollTop,
    setTotal(height) {
      total = height;
      rest.style.height = `${Math.max(0, total - self.height)}px`;
    },
    // Draws before the browser shows the next picture, however often it is asked until then.
    ask() {
      if (asked) return;
      asked = true;
      requestAnimationFrame(self.drawNow);
    },
    drawNow() {
      asked = false;
      if (!self.width || !self.height) return;
      const ratio = window.devicePixelRatio || 1;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, self.width, self.height);
      draw(context, self);
    },
    fit() {
      self.height = element.clientHeight;
      view.style.height = `${self.height}px`;
      self.width = Math.max(0, element.clientWidth - canvas.offsetLeft);
      const ratio = window.devicePixelRatio || 1;
      canvas.style.width = `${self.width}px`;
      canvas.style.height = `${self.height}px`;
      canvas.width = Math.round(self.width * ratio);
      canvas.height = Math.round(self.height * ratio);
      self.setTotal(total);
    },
  };
  element.addEventListener("scroll", self.ask, {passive: true});
  return self;
}

// The time lines of all ranks: draws the rows that are seen, and follows the pointer.
function drawBlockLife(context, pool, block, x, top, width, end, colours) {
  const left = Math.max(-4, x(pool.blocks.from[block]));
  const right = Math.min(width + 4, pool.blocks.to[block] < 0 ? end : x(pool.blocks.to[block]));
  context.fillStyle = colours.text;
  context.fillRect(left, top, Math.max(3, right - left), 4);
}

function drawRow(context, row, y, picture) {
  const {state, x, width, colours, view, largest, ordered} = picture;
  const rank = state.model.ranks[row.rank];
  if (row.kind === "rank") {
    context.fillStyle = colours.line;
    context.fillRect(0, y, width, 1);
    return;
  }
  const chosen = row.rank === state.rank && (row.kind === "events" || row.pool === state.pool);
  if (chosen && row.kind === "pool") {
    context.fillStyle = colours.chosen;
    context.fillRect(0, y, width, row.height);
  }
  if (row.kind === "pool") {
    const pool = rank.pools[row.pool];
    drawPool(context, pool, largest.get(pool.name), view, x, y, row.height, width, colours);
    if (chosen && state.block >= 0) {
      drawBlockLife(context, pool, state.block, x, y + row.height - 5, width, x(view.end), colours);
    }
  } else {
    drawEvents(context, rank.events, ordered(row.rank), view, x, y, width, colours, state.hiddenKinds);
  }
  if (rank.begin > 0) {
    context.fillStyle = view.unknown;
    context.fillRect(0, y, x(rank.begin), row.height);
  }
}

function followPointer(state, canvas, lines) {
  const tip = d3.select("#tip");
  const at = event => {
    const y = event.offsetY + lines.scroll.scrollTop();
    return {time: lines.x().invert(event.offsetX), y, row: visibleRows(lines.layout().rows, y, 1)[0]};
  };
  canvas.addEventListener("pointermove", event => {
    const {time, y, row} = at(event);
    state.setHover(Math.round(Math.max(0, Math.min(state.model.end, time))));
    const text = row && row.kind === "events" ? lines.eventText(row, event.offsetX, y) : "";
    showTip(tip, text, event);
  });
  canvas.addEventListener("pointerleave", () => {
    state.setHover(null);
    showTip(tip, "", null);
  });
  canvas.addEventListener("click", event => {
    const {time, row} = at(event);
    if (row && row.kind === "pool") state.choose(row.rank, row.pool);
    state.setCursor(time);
    lines.scroll.element.focus({preventScroll: true});
  });
}

function showTip(tip, text, event) {
  tip.attr("hidden", text ? null : "").text(text);
  if (!text) return;
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.node().offsetWidth - 8);
  const below = event.clientY + 18 + tip.node().offsetHeight < window.innerHeight;
  const top = below ? event.clientY + 18 : event.clientY - tip.node().offsetHeight - 10;
  tip.style("left", `${left}px`).style("top", `${top}px`);
}

function describeEvent(model, rank, index) {
  const events = rank.events, to = events.to[index];
  const length = to > events.from[index] ? `, ${formatDuration(to - events.from[index])} long` : "";
  const pool = rank.pools[events.pool[index]];
  const waited = events.waited_for[index] >= 0 ? `\nwaited for rank ${events.waited_for[index]}` : "";
  return `${events.kind[index]}${pool ? ` of ${pool.name}` : ""}${events.failed[index] ? " (failed)" : ""}\n` +
    `${events.text[index] || ""}\nat ${formatTime(events.from[index], model.end)}${length}${waited}`.trim();
}

function makeTimeLines(state) {
  const {model, changes} = state;
  const largest = largestByName(model), orders = new Map();
  const ordered = rank => {
    if (!orders.has(rank)) orders.set(rank, orderEvents(model.ranks[rank].events));
    return orders.get(rank);
  };
  let layout = layRows(model, ""), colours = readColours();
  const scroll = makeScrollCanvas(document.getElementById("rows"), draw);
  const view = d3.select(scroll.view);
  const names = view.append("div").attr("class", "names");
  const marks = view.append("div").attr("class", "marks");
  const hoverLine = marks.append("div").attr("class", "cursor-line hover").attr("hidden", "");
  const cursorLine = marks.append("div").attr("class", "cursor-line");
  const zoom = makeTimeZoom(state, scroll.canvas);

  function draw(context) {
    const top = scroll.scrollTop(), x = zoom.x();
    const rows = visibleRows(layout.rows, top, scroll.height);
    const view = {span: state.view, end: model.end, hatch: hatch(context, colours.asleep),
      unknown: hatch(context, colours.line)};
    const picture = {state, x, width: scroll.width, colours, view, largest, ordered};
    for (const row of rows) drawRow(context, row, row.top - top, picture);
    placeNames(names, rows, top, state);
    placeMarks(marks, rows, top, x, scroll.width, state);
    drawTimeAxis(d3.select("#axis"), x, scroll.width);
    follow();
  }

  function follow() {
    const x = zoom.x();
    for (const [line, time] of [[cursorLine, state.cursor], [hoverLine, state.hover]]) {
      const shown = time !== null && time >= state.view[0] && time <= state.view[1];
      line.attr("hidden", shown ? null : "").style("left", `${x(time)}px`);
    }
    writeValues(names, state);
    const [from, to] = state.view;
    d3.select("#span").text(`${formatTime(from, to - from)} – ${formatTime(to, to - from)}`);
  }

  const lines = {
    scroll, x: zoom.x, layout: () => layout,
    eventText(row, px, y) {
      const rank = model.ranks[row.rank], upper = y - row.top < 15;
      const index = eventAt(rank.events, ordered(row.rank), {span: state.view, end: model.end}, zoom.x(), px, upper,
        state.hiddenKinds);
      return index < 0 ? "" : describeEvent(model, rank, index);
    },
    ordered,
    relayRows() {
      layout = layRows(model, state.poolName);
      scroll.setTotal(layout.height);
      scroll.ask();
    },
    fit() {
      scroll.fit();
      zoom.resize(scroll.width);
      scroll.drawNow();
    },
    recolour() {
      colours = readColours();
      scroll.ask();
    },
  };
  scroll.setTotal(layout.height);
  state.showRow = (rank, pool) => {
    const row = layout.rows.find(row => row.kind === "pool" && row.rank === rank && row.pool === pool) ||
      layout.rows.find(row => row.rank === rank);
    if (!row) return;
    const top = scroll.scrollTop();
    if (row.top < top + 24 || row.top + row.height > top + scroll.height) {
      scroll.element.scrollTop = row.top - Math.max(24, scroll.height / 3);
    }
  };
  changes.on("view.lines", scroll.ask).on("choice.lines", scroll.ask).on("time.lines", follow);
  changes.on("rows.lines", lines.relayRows);
  followPointer(state, scroll.canvas, lines);
  return lines;
}

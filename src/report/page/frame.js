// What stands around the pictures: title, notes, legends, the theme, and the dialogs.
function writeHeader(model) {
  const title = model.title || document.title;
  d3.select("#title").text(title);
  const found = model.findings.length ? model.findings[0].text : model.difference && "the ranks' calls differ";
  document.title = [found, title].filter(Boolean).join(" · ");
  const pools = d3.sum(model.ranks, rank => rank.pools.length);
  const blocks = d3.sum(model.ranks, rank => d3.sum(rank.pools, pool => pool.blocks.bytes.length));
  d3.select("#summary").text([plural(model.ranks.length, "rank"), plural(pools, "pool"), plural(blocks, "block"),
    formatDuration(model.end)].join(" · "));
  const notes = model.notes.concat(...model.ranks.map(rank =>
    rank.notes.map(note => `rank ${rank.rank}: ${note}`)));
  if (!model.ranks.length) notes.unshift("No rank left a recording, so there is nothing to draw.");
  for (const rank of model.ranks) {
    if (!rank.pools.length) notes.push(`rank ${rank.rank} made no pool.`);
  }
  const list = d3.select("#notes").attr("hidden", notes.length ? null : "");
  list.selectAll("li").data(notes).join("li").text(note => note);
}

function writeSeriesLegend(model) {
  const items = ["allocated", "cached", "reserved", "requested"];
  const entries = d3.select("#series-legend").selectAll("li").data(items).join("li");
  entries.append("i").attr("class", name => name === "requested" ? "thin" : null)
    .style("background", name => name === "requested" ? null : `var(--${name})`)
    .style("border-color", name => name === "requested" ? "var(--requested)" : null);
  entries.append("span").text(name => name);
}

function writeKinds(state) {
  const used = new Set();
  for (const rank of state.model.ranks) for (const kind of rank.events.kind) used.add(kind);
  const entries = d3.select("#kinds").selectAll("li").data(KINDS.filter(kind => used.has(kind))).join("li")
    .append("label");
  entries.append("input").attr("type", "checkbox").property("checked", true).on("change", function (kind) {
    state.hiddenKinds[this.checked ? "delete" : "add"](kind);
    state.changes.call("view");
  });
  entries.append("i").style("background", kind => `var(--${kind})`);
  entries.append("span").text(kind => kind);
}

function writePoolFilter(state) {
  const names = new Set();
  for (const rank of state.model.ranks) for (const pool of rank.pools) names.add(pool.name);
  const filter = d3.select("#pool-filter").on("change", function () {
    state.poolName = this.selectedIndex ? this.value : "";
    state.changes.call("rows");
  });
  filter.append("option").text("all");
  filter.selectAll("option.name").data(Array.from(names)).join("option").attr("class", "name").text(name => name);
}

function listenToTheme(recolour) {
  const system = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const button = d3.select("#theme");
  const show = () => {
    button.text(isDark() ? "Light" : "Dark").attr("aria-label", isDark() ? "Light colours" : "Dark colours");
    recolour();
  };
  button.on("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();
}

function listenToDialogs() {
  for (const name of ["keys", "about"]) {
    d3.select(`#show-${name}`).on("click", () => document.getElementById(name).showModal());
  }
}

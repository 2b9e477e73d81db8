// Tables of the details: `columns` are [title, whether its cells are numbers]; a cell is a text or a function of it.
function writeTable(table, columns, rows) {
  table.selectAll("*").remove();
  const heads = table.append("thead").append("tr").selectAll("th").data(columns).join("th");
  heads.attr("scope", "col").text(([title]) => title).attr("class", ([, kind]) => kind || null);
  const body = table.append("tbody").selectAll("tr").data(rows).join("tr");
  body.selectAll("td").data(row => row).join("td").attr("class", (cell, index) => columns[index][1] || null)
    .each(function (cell) {
      if (typeof cell === "function") cell(d3.select(this));
      else d3.select(this).text(cell);
    });
  return body;
}

// Where a stack comes from, which opens to all of it.
function stackCell(text) {
  return cell => {
    if (!text.includes("\n")) {
      cell.text(text);
      return;
    }
    const details = cell.append("details");
    details.append("summary").text(placeOf(text));
    details.append("pre").text(text);
  };
}

// Begins the page.
const model = JSON.parse(document.getElementById("model").textContent);
d3.select("#title").text(model.title);

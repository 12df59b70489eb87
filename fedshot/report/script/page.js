"use strict";
// Draws the page, and again when a choice, the theme or the width has changed.

function draw() {
  if (choice.theme) root.dataset.theme = choice.theme; else delete root.dataset.theme;
  drawTheme();
  const run = data.runs[choice.run];
  if (!run) return; // a live page before its first run has ended
  for (const figure of document.querySelectorAll("figure[data-draw]")) {
    const host = figure.querySelector(".drawing");
    host.classList.remove("heat-still");
    DRAW[figure.dataset.draw](figure, host, Number(figure.dataset.task ?? run.task), run);
  }
  drawSelection(run);
  document.querySelectorAll("select.baseline").forEach(drawDifferences);
  root.dataset.drawn = document.querySelectorAll("figure[data-draw] .drawing svg").length;
}

function drawTheme() {
  const button = document.getElementById("theme");
  button.hidden = false;
  button.setAttribute("aria-pressed", String(isDark()));
  button.onclick = () => change({ theme: isDark() ? "light" : "dark" });
}

function drawSelection(run) {
  const methods = document.getElementById("method"), seeds = document.getElementById("seed");
  document.getElementById("which").hidden = false;
  if (!methods.options.length) {
    methods.replaceChildren(...data.tasks.map((task, n) => {
      const group = document.createElement("optgroup");
      group.label = task.name;
      group.append(...task.methods.map(({ label }) => new Option(label, JSON.stringify([n, label]))));
      return group;
    }));
  }
  methods.value = JSON.stringify([run.task, run.label]);
  const option = other => new Option(other.seed, data.runs.indexOf(other), false, other === run);
  seeds.replaceChildren(...runsOf(run.task, run.label).map(option));
  methods.onchange = () => {
    const found = runsOf(...JSON.parse(methods.value));
    change({ run: data.runs.indexOf(found.find(other => other.seed === run.seed) || found[0]) });
  };
  seeds.onchange = () => change({ run: Number(seeds.value) });
}

// The column of differences, to the method that the reader chose.
function drawDifferences(select, task) {
  const methods = data.tasks[task].methods, labels = methods.map(method => method.label);
  if (!select.options.length) select.replaceChildren(...labels.map(label => new Option(label, label)));
  select.closest(".controls").hidden = labels.length < 2;
  select.value = labels.includes(choice.baseline) ? choice.baseline : labels[0];
  select.onchange = () => change({ baseline: select.value });
  for (const row of document.querySelectorAll(`table.comparison[data-task="${task}"] tbody tr`)) {
    const method = methods.find(({ label }) => label === row.cells[0].dataset.value);
    const [text, value] = method.against[select.value] || ["reference", 0], cell = row.querySelector(".difference");
    cell.textContent = text;
    cell.dataset.value = value;
  }
}

function makeSortable(table) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, place) => {
    head.querySelector("button").onclick = () => {
      const down = head.getAttribute("aria-sort") !== "descending", key = row => row.cells[place].dataset.value;
      table.querySelectorAll("th[aria-sort]").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows], numeric = rows.every(row => !isNaN(Number(key(row))));
      const compare = (a, b) => numeric ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b), "en", { numeric: true });
      body.append(...rows.sort((a, b) => down ? compare(b, a) : compare(a, b)));
    };
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
readAddress();
draw();
addEventListener("hashchange", () => { readAddress(); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let drawnAt = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== drawnAt) draw();
  drawnAt = innerWidth;
});

"use strict";
// What the reader chose. The choices stand in the address after #, for example #dark&log&run=3&hide=fafi&baseline=etf,
// so that a view can be sent on.

const data = JSON.parse(document.getElementById("data").textContent), root = document.documentElement;
const choice = {};

function readAddress() {
  Object.assign(choice, { theme: null, log: null, run: 0, baseline: null, hidden: new Set() });
  const params = new URLSearchParams(location.hash.slice(1));
  for (const [key, value] of params) {
    if (key === "dark" || key === "light") choice.theme = key;
    else if (key === "log" || key === "linear") choice.log = key === "log";
    else if (key === "run" && data.runs[Number(value)]) choice.run = Number(value);
    else if (key === "baseline") choice.baseline = value;
    else if (key === "hide") choice.hidden.add(value);
  }
}
function writeAddress() {
  const parts = [choice.theme, choice.log === null ? null : choice.log ? "log" : "linear"];
  if (choice.run) parts.push(`run=${choice.run}`);
  if (choice.baseline !== null) parts.push(`baseline=${encodeURIComponent(choice.baseline)}`);
  for (const name of choice.hidden) parts.push(`hide=${encodeURIComponent(name)}`);
  history.replaceState(null, "", `#${parts.filter(Boolean).join("&")}`);
}
function change(what) {
  Object.assign(choice, what);
  writeAddress();
  draw();
}

function toolButton(text, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "tool";
  button.innerHTML = text;
  button.onclick = act;
  return button;
}
// Buttons that hide and show series; returns those that are shown.
function legend(figure, series) {
  let box = figure.querySelector(".legend");
  if (!box) {
    box = document.createElement("div");
    box.className = "legend";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Series: press to hide or show");
    figure.querySelector(".drawing").before(box);
  }
  const names = series.map(line => line.name).join("\n");
  if (box.dataset.names !== names) { // a button that stays keeps the focus
    box.dataset.names = names;
    box.replaceChildren(...series.map(legendButton));
  }
  for (const button of box.children) button.setAttribute("aria-pressed", String(!choice.hidden.has(button.dataset.series)));
  return series.filter(line => !choice.hidden.has(line.name));
}
function legendButton(line) {
  const same = value => value, sign = line.mark ? mark(line.mark, 13, 5, 3, line.colour) : "";
  const sample = pathOf({ ...line, mark: null, points: [[0, 5], [26, 5]] }, same, same, () => true);
  const drawing = `<svg viewBox="0 0 26 10" aria-hidden="true">${sample}${sign}</svg>`;
  const button = toolButton(drawing + escaped(line.name), () => {
    const hidden = new Set(choice.hidden);
    if (!hidden.delete(line.name)) hidden.add(line.name);
    change({ hidden });
  });
  button.dataset.series = line.name;
  return button;
}
function logButton(figure, log) {
  let button = figure.querySelector(".axis");
  if (!button) {
    button = toolButton("logarithmic axis");
    button.classList.add("axis");
    const row = document.createElement("div");
    row.className = "controls";
    row.append(button);
    figure.querySelector("figcaption").after(row);
  }
  button.setAttribute("aria-pressed", String(log));
  button.onclick = () => change({ log: !log });
}

"use strict";
// What all figures stand on: text, scales, marks, the box that follows the pointer, and a table of the same values.

const MARKS = ["circle", "square", "diamond", "triangle", "cross", "ring"];
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "1 3", "12 4"];

const escaped = text => String(text).replace(/[&<>"']/g, sign => `&#${sign.charCodeAt(0)};`);
const absent = value => value === null || value === undefined;
function told(value) {
  if (absent(value)) return "–";
  const extreme = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3);
  return (extreme ? value.toExponential(2) : String(+value.toPrecision(4))).replaceAll("-", "−");
}
const numbers = count => [...Array(count).keys()].map(String);
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("role", "status");
document.body.append(tip);
function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), below = y + 18 + box.height <= innerHeight;
  tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - box.width - 6))}px`;
  tip.style.top = `${below ? y + 18 : Math.max(6, y - box.height - 12)}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("keydown", event => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", hideTip, { passive: true });

function ticks([low, high], count, log = false) {
  const found = [];
  if (log) {
    const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
    const step = Math.ceil((last - first) / count) || 1;
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found.length > 1 ? found : [low * 1.02, Math.sqrt(low * high), high * .98];
  }
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(multiple => multiple * power >= raw) * power;
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(+value.toPrecision(12));
  return found;
}
function scale([low, high], from, to, log = false) {
  const map = log ? Math.log10 : value => value, start = map(low), span = map(high) - start || 1;
  return value => +(from + (map(value) - start) / span * (to - from)).toFixed(2);
}
// Lowest and highest with a margin; null where there is nothing to draw.
function extent(values, log = false) {
  const usable = values.filter(value => !absent(value) && (!log || value > 0));
  if (!usable.length) return null;
  const low = Math.min(...usable), high = Math.max(...usable), margin = low === high ? Math.abs(low) * .1 || 1 : (high - low) * .05;
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  return [low - margin, high + margin];
}
// Whether a linear axis would flatten most of the lines.
function spansDecades(values) {
  const found = values.filter(value => !absent(value));
  return found.length > 0 && Math.min(...found) > 0 && Math.max(...found) / Math.min(...found) > 50;
}

function mark(kind, x, y, r, colour) {
  const wide = +(r * 1.4).toFixed(1), fill = `fill="${colour}"`, line = `fill="none" stroke="${colour}" stroke-width="2"`;
  switch (kind) {
    case "square": return `<rect x="${x - r}" y="${y - r}" width="${2 * r}" height="${2 * r}" ${fill}/>`;
    case "diamond": return `<path d="M${x} ${y - wide}l${wide} ${wide}l${-wide} ${wide}l${-wide} ${-wide}z" ${fill}/>`;
    case "triangle": return `<path d="M${x} ${y - wide}l${wide} ${2 * r}h${-2 * wide}z" ${fill}/>`;
    case "cross": return `<path d="M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}" ${line}/>`;
    case "ring": return `<circle cx="${x}" cy="${y}" r="${r}" ${line}/>`;
    default: return `<circle cx="${x}" cy="${y}" r="${r}" ${fill}/>`;
  }
}
const label = (x, y, text, anchor = "middle", style = "") =>
  `<text x="${x}" y="${y}" text-anchor="${anchor}"${style && ` style="${style}"`}>${escaped(text)}</text>`;
const gridLine = (x1, y1, x2, y2) => `<line class="grid" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
function svg(width, height, title, description, inside) {
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(`${title}. ${description}`)}">` +
    `<title>${escaped(title)}</title><desc>${escaped(description)}</desc>${inside}</svg>`;
}

// The pointer or the arrow keys choose one of `count` places. find(x, y): which one lies there, or null; text(n): what
// to say about it; where(n): its x and y; columns: places in a row, for the keys up and down.
function explore(host, { count, find, text, where, columns = 1 }) {
  const drawing = host.querySelector("svg"), title = drawing.querySelector("title").textContent;
  const ratio = () => drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
  let at = -1;
  host.tabIndex = 0;
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", `${title}: arrow keys read the values`);
  host.onpointermove = event => {
    const box = drawing.getBoundingClientRect(), k = ratio();
    const found = find((event.clientX - box.left) / k, (event.clientY - box.top) / k);
    if (found === null) return hideTip();
    at = found;
    showTip(text(at), event.clientX, event.clientY);
  };
  host.onpointerleave = host.onblur = hideTip;
  host.onkeydown = event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!step || !count) return;
    event.preventDefault();
    at = Math.max(0, Math.min(count - 1, at + step));
    const box = drawing.getBoundingClientRect(), [x, y] = where(at), k = ratio();
    showTip(text(at), box.left + x * k, box.top + y * k);
  };
}
// Which of some places, each [x, y, …], is nearest, if any is near.
function nearest(places, x, y, reach) {
  let best = null, least = reach ** 2;
  places.forEach(([a, b], n) => {
    const distance = (a - x) ** 2 + (b - y) ** 2;
    if (distance < least) { least = distance; best = n; }
  });
  return best;
}
// A sentence in the place of a figure.
function say(host, text) {
  host.innerHTML = `<p class="quiet">${escaped(text)}</p>`;
  host.classList.remove("panels");
  host.removeAttribute("tabindex");
  host.onpointermove = host.onkeydown = null;
}

const cellOf = value => escaped(typeof value === "number" || absent(value) ? told(value) : value);
function tableOf(head, rows) {
  const heads = head.map(name => `<th scope="col">${escaped(name)}</th>`).join("");
  const lines = rows.map(([first, ...rest]) =>
    `<tr><th scope="row">${escaped(first)}</th>${rest.map(value => `<td>${cellOf(value)}</td>`).join("")}</tr>`);
  return `<table><thead><tr>${heads}</tr></thead><tbody>${lines.join("")}</tbody></table>`;
}
// The values of a figure as a table, made when it is opened.
function asTable(figure, head, rows) {
  let box = figure.querySelector("details.values");
  if (!box) {
    box = document.createElement("details");
    box.className = "values";
    box.innerHTML = '<summary>Values as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Values"></div>';
    figure.append(box);
  }
  const fill = () => { if (box.open) box.lastElementChild.innerHTML = tableOf(head(), rows()); };
  box.ontoggle = fill;
  fill();
}

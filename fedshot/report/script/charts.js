"use strict";
// Lines, dots, points in a plane, and maps of coloured cells.

function axes({ xs, ys, px, py, left, right, bottom, x, y, log }) {
  let out = label((left + right) / 2, bottom + 31, x) + label(4, 10, y + (log ? ", logarithmic" : ""), "start");
  for (const tick of ticks(ys, 4, log)) {
    if (tick < ys[0] || tick > ys[1]) continue;
    out += gridLine(left, py(tick), right, py(tick)) + label(left - 6, py(tick) + 4, told(tick), "end");
  }
  for (const tick of ticks(xs, Math.min(6, right / 70))) {
    if (Number.isInteger(tick) && tick >= xs[0] && tick <= xs[1]) out += label(px(tick), bottom + 15, told(tick));
  }
  return out;
}
// series: {name, colour, dash, mark, width, opacity, points: [[x, y, low?, high?], …]}
function lineChart(host, { title, x, y, series, log = false, range = null, height = 260 }) {
  const usable = value => !absent(value) && (!log || value > 0), all = series.flatMap(line => line.points);
  const ys = range || extent(all.flatMap(point => point.slice(1)), log);
  if (!ys) return say(host, log ? "No positive values to draw on a logarithmic axis." : "Nothing to draw: all series are hidden.");
  const places = [...new Set(all.map(point => point[0]))].sort((a, b) => a - b);
  const xs = places.length > 1 ? [places[0], places.at(-1)] : [places[0] - .5, places[0] + .5];
  const width = Math.max(240, Math.min(620, host.clientWidth || 560)), left = 52, right = width - 10, bottom = height - 36;
  const px = scale(xs, left, right), py = scale(ys, bottom, 24, log);
  let out = axes({ xs, ys, px, py, left, right, bottom, x, y, log });
  for (const line of series) {
    const band = line.points.filter(point => usable(point[2]) && usable(point[3]));
    const upper = band.map(point => `${px(point[0])} ${py(point[3])}`), lower = band.map(point => `${px(point[0])} ${py(point[2])}`);
    if (band.length > 1) out += `<path fill="${line.colour}" opacity=".16" d="M${[...upper, ...lower.reverse()].join("L")}z"/>`;
  }
  for (const line of series) out += pathOf(line, px, py, usable);
  const ends = line => { const last = line.points.filter(point => !absent(point[1])).at(-1);
    return last ? `${line.name} ends at ${told(last[1])}` : `${line.name} has no values`; };
  host.innerHTML = svg(width, height, title, series.map(ends).join("; "), out);
  const valueOf = (line, place) => { const point = line.points.find(other => other[0] === place);
    return point && `${line.name}: ${told(point[1])}${absent(point[2]) ? "" : ` (${told(point[2])} to ${told(point[3])})`}`; };
  explore(host, {
    count: places.length,
    find: at => places.reduce((best, place, n) => Math.abs(px(place) - at) < Math.abs(px(places[best]) - at) ? n : best, 0),
    text: n => [`${x} ${told(places[n])}`, ...series.map(line => valueOf(line, places[n])).filter(Boolean)].join("\n"),
    where: n => [px(places[n]), 24],
  });
}
function pathOf(line, px, py, usable) {
  let path = "", pen = "M", marks = "";
  for (const [x, y] of line.points) {
    if (!usable(y)) { pen = "M"; continue; }
    path += `${pen}${px(x)} ${py(y)}`;
    pen = "L";
    if (line.mark && line.points.length < 30) marks += mark(line.mark, px(x), py(y), 3, line.colour);
  }
  return `<path fill="none" stroke="${line.colour}" stroke-width="${line.width || 2}" opacity="${line.opacity || 1}" ` +
    `stroke-dasharray="${line.dash || ""}" d="${path}"/>${marks}`;
}

// rows: {name, colour, mark, mean, values: [[value, seed], …]}
function dotChart(host, { title, x, rows }) {
  const width = Math.max(280, Math.min(620, host.clientWidth || 560)), left = Math.min(170, width * .36), right = width - 14;
  const xs = extent(rows.flatMap(row => row.values.map(value => value[0]))), px = scale(xs, left, right);
  const height = rows.length * 30 + 44, y = n => n * 30 + 20, dots = [];
  let out = label((left + right) / 2, height - 5, x);
  for (const tick of ticks(xs, Math.min(6, (right - left) / 60))) {
    out += gridLine(px(tick), 6, px(tick), height - 38) + label(px(tick), height - 22, told(tick));
  }
  for (const seed of new Set(rows.flatMap(row => row.values.map(value => value[1])))) {
    const thread = rows.flatMap((row, n) => row.values.filter(value => value[1] === seed).map(value => `${px(value[0])} ${y(n)}`));
    out += `<path d="M${thread.join("L")}" fill="none" stroke="currentColor" opacity=".3" stroke-width=".8"/>`;
  }
  rows.forEach((row, n) => {
    const most = Math.floor((left - 14) / 6.2), name = row.name.length > most ? "…" + row.name.slice(1 - most) : row.name;
    out += label(left - 8, y(n) + 4, name, "end");
    out += `<path d="M${px(row.mean)} ${y(n) - 9}v18" stroke="${row.colour}" stroke-width="3"/>`;
    for (const [value, seed] of row.values) {
      out += `<g opacity=".75">${mark(row.mark, px(value), y(n), 4, row.colour)}</g>`;
      dots.push([px(value), y(n), `${row.name}, seed ${seed}: ${told(value)}\nmean ${told(row.mean)}`]);
    }
  });
  host.innerHTML = svg(width, height, title, rows.map(row => `${row.name} ${told(row.mean)}`).join("; "), out);
  explore(host, { count: dots.length, find: (a, b) => nearest(dots, a, b, 20), text: n => dots[n][2], where: n => dots[n] });
}

// points: {x, y, text, tip, colour, mark, large}
function plane(host, { title, description, points }) {
  const size = Math.max(260, Math.min(440, host.clientWidth || 400));
  const xs = extent(points.map(point => point.x)), ys = extent(points.map(point => point.y));
  const reach = Math.max(xs[1] - xs[0], ys[1] - ys[0]) / 2; // both axes have one scale
  const around = ([low, high]) => [(low + high) / 2 - reach, (low + high) / 2 + reach];
  const px = scale(around(xs), 14, size - 14), py = scale(around(ys), size - 14, 14), places = points.map(p => [px(p.x), py(p.y)]);
  let out = gridLine(0, py(0), size, py(0)) + gridLine(px(0), 0, px(0), size);
  points.forEach((point, n) => {
    const [x, y] = places[n];
    out += point.large
      ? mark("ring", x, y, 6, point.colour) + label(x + 9, y - 6, point.text, "start", "fill:var(--ink);font-size:13px")
      : `<g opacity=".7">${mark(point.mark, x, y, 2.6, point.colour)}</g>`;
  });
  host.innerHTML = svg(size, size, title, description, out);
  explore(host, { count: points.length, find: (a, b) => nearest(places, a, b, 14), text: n => points[n].tip, where: n => places[n] });
}

// Strong is dark on a light page, and light on a dark one.
const DEPTH = [[207, 226, 236], [151, 197, 214], [74, 157, 186], [31, 102, 144], [16, 52, 92]];
// From the ground of the page to blue for positive and to orange for negative numbers.
const SIGNED = {
  light: [
    [[255, 255, 255], [151, 197, 214], [31, 102, 144], [16, 52, 92]],
    [[255, 255, 255], [240, 190, 140], [176, 84, 32], [110, 44, 8]],
  ],
  dark: [
    [[29, 36, 43], [31, 82, 116], [96, 166, 198], [207, 226, 236]],
    [[29, 36, 43], [112, 62, 28], [214, 138, 80], [250, 215, 180]],
  ],
};
const isDark = () => getComputedStyle(document.documentElement).colorScheme.includes("dark");
// The colour of a cell, and the ink, black or white, that reads better on it.
function shade(value, signed) {
  const ramp = signed ? SIGNED[isDark() ? "dark" : "light"][value < 0 ? 1 : 0] : isDark() ? [...DEPTH].reverse() : DEPTH;
  const at = Math.min(1, Math.abs(value)) * (ramp.length - 1), n = Math.min(ramp.length - 2, Math.floor(at));
  const rgb = ramp[n].map((part, c) => Math.round(part + (ramp[n + 1][c] - part) * (at - n)));
  const [r, g, b] = rgb.map(part => part / 255).map(part => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return [`rgb(${rgb})`, .2126 * r + .7152 * g + .0722 * b > .179 ? "#000" : "#fff"];
}
// cell(row, column): {value: from 0 to 1, or from -1 if signed, or null; text; tip; held: whether it is framed}
function heatMap(host, { title, description, rows, columns, top, cell, gap = rows.length, signed = false }) {
  const room = host.clientWidth || 600, left = Math.min(210, Math.max(...rows.map(row => row.length)) * 6.1 + 10);
  const side = Math.max(room < 500 ? 20 : 8, Math.min(46, (Math.min(room, 900) - left - 6) / columns.length));
  const high = Math.max(10, Math.min(24, Math.max(side, 18), 1800 / rows.length));
  const width = Math.ceil(left + side * columns.length + 6), x = c => +(left + c * side).toFixed(2);
  const y = r => +(34 + r * high + (r >= gap ? 6 : 0)).toFixed(2), height = Math.ceil(y(rows.length) + 10);
  const cells = rows.map((_, r) => columns.map((_, c) => cell(r, c))), written = side >= 19 && high >= 12;
  const small = side < 28 && cells.flat().some(one => String(one.text).length > 3);
  let out = label(left, 11, top, "start");
  const every = Math.ceil(26 / side), everyRow = Math.ceil(11 / high);
  columns.forEach((name, c) => { if (c % every === 0) out += label(x(c + .5), 27, name); });
  rows.forEach((name, r) => {
    const short = name.length > 33 ? `${name.slice(0, 32)}…` : name;
    if (r % everyRow === 0) out += label(left - 6, y(r) + high / 2 + 4, short, "end");
  });
  cells.forEach((row, r) => row.forEach((one, c) => {
    const [fill, ink] = one.value === null ? ["var(--none)", "currentColor"] : shade(one.value, signed);
    const box = (inset, rest) => `<rect x="${x(c) + inset}" y="${y(r) + inset}" width="${(side - .7 - 2 * inset).toFixed(2)}" ` +
      `height="${(high - .7 - 2 * inset).toFixed(2)}" ${rest}/>`;
    out += box(0, `style="fill:${fill}"`);
    if (one.held) out += box(1.5, `fill="none" stroke="${ink}" stroke-width="1.4"`);
    if (!written || one.text === "") return;
    out += label(x(c + .5), y(r) + high / 2 + 3.5, one.text, "middle", `fill:${ink};font-size:${small ? 8.5 : 10}px`);
  }));
  host.innerHTML = svg(width, height, title, description, out);
  const drawing = host.querySelector("svg"), count = rows.length * columns.length;
  drawing.style.width = drawing.style.minWidth = drawing.style.maxWidth = `${width}px`;
  explore(host, {
    count, columns: columns.length,
    find: (a, b) => {
      const c = Math.floor((a - left) / side), r = rows.findIndex((_, n) => b >= y(n) && b < y(n) + high);
      return r >= 0 && c >= 0 && c < columns.length ? r * columns.length + c : null;
    },
    text: n => cells.flat()[n].tip,
    where: n => [x(n % columns.length + .5), y(Math.floor(n / columns.length)) + high / 2],
  });
}

"use strict";
// The figures of the page by kind. Each draws into `host`, from a task (a comparison) or from one run.

const COLOURS = data.colours;
const NO_TELEMETRY = "There is no telemetry beside this record.";
const NO_PROTOTYPES = "There are no prototypes to show: the method has none, the uploads are gone, " +
  "or they were left out to keep this file small.";
const NOT_ALONE = "The record keeps no classes of single clients, or they were left out to keep this file small: " +
  "record.json has them.";
const LOOKS = {
  lambda_raw: { name: "raw λ", colour: COLOURS[6], dash: "", width: 5, opacity: .55 },
  lambda_equilibrium: { name: "predicted equilibrium", colour: COLOURS[1], dash: "6 3", width: 2, opacity: 1 },
  lambda_effective: { name: "effective λ", colour: COLOURS[2], dash: "", width: 2, opacity: 1 },
  attenuation: { name: "attenuation", colour: COLOURS[4], dash: "2 3", width: 2, opacity: 1 },
};
const runsOf = (task, label) => data.runs.filter(run => run.task === task && run.label === label);
const samples = counts => counts.reduce((sum, count) => sum + count, 0);
const plainName = column => column.replace(/^loss_/, "").replaceAll("_", " ");

// The values of a column of one client; a column that never changes is stored as one number.
function column(telemetry, name, client) {
  const values = telemetry.columns[name];
  return Array.isArray(values) ? values[client] : telemetry.epochs[client].map(() => values);
}
const pointsOf = (telemetry, name, client) => column(telemetry, name, client).map((value, n) => [telemetry.epochs[client][n], value]);
function thinned({ clients, epochs, of: [allClients, allEpochs] }) {
  const most = Math.max(...epochs.map(list => list.length));
  const few = allClients > clients.length ? `The ${clients.length} largest of ${allClients} clients. ` : "";
  if (most >= allEpochs) return `${few}All epochs are drawn.`;
  return `${few}${most} of ${allEpochs} epochs are drawn, at even steps, to keep this file small; telemetry.jsonl has all.`;
}
function telemetryTable(figure, telemetry, names, heads) {
  const rowsOf = (client, k) => telemetry.epochs[k].map((epoch, n) =>
    [String(client), String(epoch), ...names.map(name => column(telemetry, name, k)[n])]);
  asTable(figure, () => ["client", "epoch", ...heads], () => telemetry.clients.flatMap(rowsOf));
}
// One panel for each client, all on the same axes, with one legend.
function panels(figure, host, run, names, y) {
  const telemetry = run.telemetry, { sizes } = data.partitions[run.partition];
  const series = names.map((name, n) => ({ key: name, name: plainName(name), colour: COLOURS[n % 8], dash: DASHES[n % 6],
    width: n ? 2 : 5, opacity: n ? 1 : .5, ...LOOKS[name] })); // the first is broad: another may lie on it
  const shown = legend(figure, series);
  const values = shown.flatMap(line => telemetry.clients.flatMap((_, k) => column(telemetry, line.key, k)));
  const log = choice.log === null ? spansDecades(values) : choice.log, range = extent(values, log);
  logButton(figure, log);
  host.classList.add("panels");
  const panel = client => `<div><h4>client ${client} · ${sizes[client]} samples</h4><div></div></div>`;
  host.innerHTML = telemetry.clients.map(panel).join("");
  [...host.children].forEach((box, k) => lineChart(box.lastElementChild, {
    title: box.firstElementChild.textContent, x: "local epoch", y, log, range, height: 180,
    series: shown.map(line => ({ ...line, points: pointsOf(telemetry, line.key, k) })),
  }));
  figure.querySelector(".thinned").textContent = thinned(telemetry);
  telemetryTable(figure, telemetry, names, series.map(line => line.name));
}
// A sentence in the place of a figure, without the controls of an earlier one.
function without(figure, host, text) {
  for (const part of figure.querySelectorAll(".legend, .axis, details.values")) part.remove();
  for (const part of figure.querySelectorAll(".thinned")) part.textContent = "";
  say(host, text);
}

const DRAW = {
  dots(figure, host, task) {
    const rows = data.tasks[task].methods.map(({ label, colour }, n) => {
      const values = runsOf(task, label).map(run => [run.accuracy, run.seed]);
      return { name: label, colour, mark: MARKS[n % 6], mean: mean(values.map(([accuracy]) => accuracy)), values };
    });
    dotChart(host, { title: "Accuracy of every seed", x: "accuracy on the test images, %", rows });
  },

  curves(figure, host, task) {
    const series = data.tasks[task].methods.map(({ label, colour }, n) => {
      const curves = runsOf(task, label).map(run => new Map(run.curve));
      const shared = [...curves[0].keys()].filter(epoch => curves.every(curve => curve.has(epoch)));
      const points = shared.map(epoch => {
        const values = curves.map(curve => curve.get(epoch)), middle = mean(values);
        if (values.length < 2) return [epoch, middle];
        const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
        return [epoch, middle, middle - spread, middle + spread];
      });
      return { name: label, colour, mark: MARKS[n % 6], dash: DASHES[Math.floor(n / 8) % 6], points };
    });
    const shown = legend(figure, series);
    lineChart(host, { title: "Accuracy over local epochs", x: "local epoch", y: "accuracy, %", series: shown, height: 300 });
    const epochs = [...new Set(series.flatMap(line => line.points.map(point => point[0])))].sort((a, b) => a - b);
    const valueAt = (line, epoch) => line.points.find(point => point[0] === epoch)?.[1] ?? null;
    const rowAt = epoch => [String(epoch), ...series.map(line => valueAt(line, epoch))];
    asTable(figure, () => ["local epoch", ...series.map(line => line.name)], () => epochs.map(rowAt));
  },

  classes(figure, host, task) {
    const rows = data.tasks[task].methods.map(method => method.label), columns = numbers(runsOf(task, rows[0])[0].classes.length);
    const share = (name, c) => { const known = runsOf(task, name).map(run => run.classes[c]).filter(value => value !== null);
      return known.length ? mean(known) : null; };
    const shares = rows.map(name => columns.map((_, c) => share(name, c)));
    const least = row => row.indexOf(Math.min(...row.filter(value => value !== null)));
    heatMap(host, {
      title: "Class by class", rows, columns, top: "class",
      description: rows.map((name, r) => `${name} recognises class ${least(shares[r])} least`).join("; "),
      cell: (r, c) => shareCell(shares[r][c], `${rows[r]}, class ${c}`),
    });
    asTable(figure, () => ["method", ...columns], () => rows.map((name, r) => [name, ...shares[r]]));
  },

  partition(figure, host, _, run) {
    const { counts, sizes, bits } = data.partitions[run.partition], most = Math.log(Math.max(2, ...counts.flat()) + 1);
    const full = counts.map((_, k) => `client ${k} · ${sizes[k]} · ${bits[k].toFixed(2)} bit`);
    const few = counts.length < sizes.length ? `The first ${counts.length} of ${sizes.length} clients; record.json has all.` : "";
    figure.querySelector(".thinned").textContent = few;
    const columns = numbers(counts[0].length);
    heatMap(host, {
      title: "Who holds what", columns, top: "class",
      rows: host.clientWidth < 500 ? counts.map((_, k) => `client ${k}`) : full,
      description: `${sizes.length} clients, ${columns.length} classes; samples and label entropy: ${full.slice(0, 30).join("; ")}`,
      cell: (r, c) => ({ value: counts[r][c] ? Math.log(counts[r][c] + 1) / most : null, text: counts[r][c] || "·",
        tip: `${full[r]}\nclass ${c}: ${counts[r][c]} samples` }),
    });
    asTable(figure, () => ["client", ...columns], () => counts.map((row, k) => [String(k), ...row]));
  },

  lambda(figure, host, _, run) {
    const columns = run.telemetry?.columns;
    if (!columns) return without(figure, host, NO_TELEMETRY);
    if (!columns.lambda_effective) return without(figure, host, `${run.label} weighs no alignment loss.`);
    panels(figure, host, run, Object.keys(LOOKS).filter(name => name in columns), "λ");
  },

  losses(figure, host, _, run) {
    if (!run.telemetry) return without(figure, host, NO_TELEMETRY);
    panels(figure, host, run, Object.keys(run.telemetry.columns).filter(name => name.startsWith("loss_")), "loss");
  },

  further(figure, host, _, run) {
    const telemetry = run.telemetry, select = figure.querySelector("select");
    select.hidden = !telemetry;
    if (!telemetry) return without(figure, host, NO_TELEMETRY);
    const names = Object.keys(telemetry.columns).filter(name => !/^(loss|lambda)_/.test(name));
    const chosen = [select.value, "cos_prototype_anchor", names[0]].find(name => names.includes(name)), y = plainName(chosen);
    select.replaceChildren(...names.map(name => new Option(plainName(name), name, false, name === chosen)));
    select.onchange = draw;
    const series = telemetry.clients.map((client, k) => ({ name: `client ${client}`, colour: COLOURS[k % 8], mark: MARKS[k % 6],
      dash: DASHES[Math.floor(k / 8)], points: pointsOf(telemetry, chosen, k) }));
    lineChart(host, { title: y, x: "local epoch", y, series: legend(figure, series), height: 280 });
    telemetryTable(figure, telemetry, [chosen], [y]);
  },

  cosines(figure, host, _, run) {
    const found = run.geometry;
    if (!found) return without(figure, host, NO_PROTOTYPES);
    const columns = numbers(found.cosines.length), rows = columns.map(name => `class ${name}`), pairs = rows.length;
    if (found.anchor) rows.push("own anchor");
    const value = (r, c) => r < pairs ? found.cosines[r][c] / 100 : found.anchor[c];
    const written = number => number.toFixed(2).replace("0.", ".").replace("-", "−");
    const about = `In a simplex ETF every pair has cosine ${told(found.etf)}; ` +
      `here pairs are ${told(found.apart)} away from it in the mean.`;
    figure.querySelector(".thinned").textContent = about;
    heatMap(host, {
      title: "Cosines of the mean prototypes", description: about, rows, columns, top: "class", gap: pairs, signed: true,
      cell: (r, c) => ({ value: value(r, c), text: r === c ? "" : written(value(r, c)),
        tip: `${rows[r]} and class ${c}: cosine ${told(value(r, c))}${r < pairs && r !== c ? `\nETF ${told(found.etf)}` : ""}` }),
    });
    asTable(figure, () => ["", ...columns], () => rows.map((name, r) => [name, ...columns.map((_, c) => value(r, c))]));
  },

  plane(figure, host, _, run) {
    const found = run.geometry;
    if (!found) return without(figure, host, NO_PROTOTYPES);
    const share = Math.round(100 * found.share);
    figure.querySelector(".thinned").textContent = `The two directions hold ${share} % of the variance of the mean prototypes.`;
    const means = found.plane.filter(([client]) => client < 0);
    plane(host, {
      title: "Prototypes in the plane",
      description: means.map(([, c, x, y]) => `class ${c} at ${told(x)}, ${told(y)}`).join("; "),
      points: found.plane.map(([client, c, x, y]) => ({ x, y, large: client < 0, text: c, colour: COLOURS[c % 8], mark: MARKS[c % 6],
        tip: `class ${c}, ${client < 0 ? "mean of all clients" : `client ${client}`}` })),
    });
  },

  alone(figure, host, _, run) {
    if (!run.alone) return without(figure, host, NOT_ALONE);
    const clients = Object.keys(run.alone).map(Number), columns = numbers(run.classes.length);
    const { counts } = data.partitions[run.partition];
    const shareOf = (client, c) => run.alone[client][c] ?? -1;
    const best = columns.map((_, c) => clients.reduce((one, other) => shareOf(other, c) > shareOf(one, c) ? other : one));
    const rows = [...clients.map(client => `client ${client}`), "best client alone", "fused"];
    const value = (r, c) => {
      if (r < clients.length) return run.alone[clients[r]][c];
      return r === clients.length ? run.alone[best[c]][c] : run.classes[c];
    };
    const cell = (r, c) => {
      const held = counts[clients[r]]?.[c] ?? null, who = r === clients.length ? ` (client ${best[c]})` : "";
      const one = shareCell(value(r, c), `${rows[r]}${who}, class ${c}`);
      return { ...one, held: held > 0, tip: one.tip + (held === null ? "" : `\nholds ${held} samples of it`) };
    };
    heatMap(host, { title: "Clients alone and fused", rows, columns, top: "class", gap: clients.length, cell,
      description: `Best client of each class: ${best.map((client, c) => `class ${c} client ${client}`).join("; ")}` });
    const table = rows.map((name, r) => [name, ...columns.map((_, c) => value(r, c))]);
    asTable(figure, () => ["", ...columns], () => [...table, ["who is best", ...best.map(String)]]);
  },

  confusion(figure, host, _, run) {
    const counts = run.confusion;
    if (!counts) return without(figure, host, "Left out to keep this file small: record.json has it.");
    const sums = counts.map(samples), columns = numbers(counts.length);
    const wrong = counts.flatMap((row, r) => row.map((count, c) => [count, r, c])).filter(([count, r, c]) => count && r !== c);
    const most = wrong.sort((a, b) => b[0] - a[0]).slice(0, 5).map(([count, r, c]) => `${count} times class ${r} taken for ${c}`);
    heatMap(host, {
      title: "Confusion", rows: columns.map(name => `truth ${name}`), columns, top: "prediction",
      description: most.length ? `Most frequent mistakes: ${most.join("; ")}` : "No mistakes",
      cell: (r, c) => ({ value: counts[r][c] ? counts[r][c] / sums[r] : null, text: counts[r][c] || "·", held: r === c,
        tip: `truth ${r}, prediction ${c}: ${counts[r][c]} of ${sums[r]} images` }),
    });
    asTable(figure, () => ["truth", ...columns], () => counts.map((row, r) => [String(r), ...row]));
  },
};
function shareCell(percent, name) {
  if (percent === null) return { value: null, text: "·", tip: `${name}: no test images` };
  return { value: percent / 100, text: Math.round(percent), tip: `${name}: ${told(percent)} % recognised` };
}

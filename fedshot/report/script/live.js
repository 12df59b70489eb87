"use strict";
// While runs are under way: what has been written since, asked of the server that gave this page.

const underWay = document.getElementById("under-way");
const SHOWN = { base_loss: "base loss", lambda_effective: "effective λ" };
const HEADS = ["run", "method", "seed", "clients finished", "epochs", "last written"];

function since(seconds) {
  if (seconds < 90) return `${seconds} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}
function rowOf(run) {
  const bar = `<progress max="${run.clients}" value="${run.done}" aria-label="clients finished"></progress>`;
  const said = run.done === run.clients ? "all; the server is next" : `${run.done} of ${run.clients}`;
  const cells = [escaped(run.method), run.seed, `${bar} ${said}`, escaped(run.epochs), since(run.quiet)];
  return `<tr><th scope="row">${escaped(run.name)}</th>${cells.map(cell => `<td>${cell}</td>`).join("")}</tr>`;
}
function drawUnderWay(runs) {
  if (!runs.length) { say(underWay, "No run is under way."); return; }
  const heads = HEADS.map(name => `<th scope="col">${name}</th>`).join("");
  const charts = runs.filter(run => run.telemetry).slice(0, 4).flatMap(run => Object.keys(SHOWN)
    .filter(name => run.telemetry.columns[name]).map(name => ({ run, name, title: `${run.name}: ${SHOWN[name]}` })));
  const figures = charts.map(({ title }) => `<figure><figcaption><h3>${escaped(title)}</h3>` +
    '<p>One line for each finished client.</p></figcaption><div class="drawing"></div></figure>');
  const table = `<table><thead><tr>${heads}</tr></thead><tbody>${runs.map(rowOf).join("")}</tbody></table>`;
  underWay.innerHTML = `<div class="scroll" tabindex="0" role="region" aria-label="Runs under way">${table}</div>` +
    `<div class="figures">${figures.join("")}</div>`;
  underWay.querySelectorAll(".drawing").forEach((host, place) => {
    const { run: { telemetry }, name, title } = charts[place];
    const series = telemetry.clients.map((client, k) => ({ name: `client ${client}`, colour: COLOURS[k % 8], mark: MARKS[k % 6],
      points: pointsOf(telemetry, name, k) }));
    lineChart(host, { title, x: "local epoch", y: SHOWN[name], series, height: 200 });
  });
}

let lastSeen = "";
async function poll() {
  const state = document.getElementById("state");
  try {
    const answer = await fetch("live.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const found = await answer.json();
    if (found.version !== root.dataset.version) return location.reload();
    state.textContent = "live";
    const seen = JSON.stringify(found.runs);
    if (seen !== lastSeen) drawUnderWay(found.runs);
    lastSeen = seen;
  } catch (error) {
    state.textContent = `not live: ${error.message}`;
  }
  setTimeout(poll, 2000);
}
poll();

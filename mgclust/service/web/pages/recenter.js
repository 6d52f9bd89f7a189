// Choose other centres by a box on the decision graph or by numbers, preview their clusters, and store them.

import { ask, askJson, newKey, post } from "./session.js";
import { bytes, clusters, element, show } from "./words.js";
import { Graph, drawMap, drawSizes } from "./drawing.js";

const MAX_ROWS = 5e6; // 80 MB of two quantities
const by = (id) => document.getElementById(id);

// Parse a one-dimensional .npy file.
function numbers(buffer) {
  const head = new DataView(buffer);
  const wide = head.getUint8(6) > 1;
  const length = wide ? head.getUint32(8, true) : head.getUint16(8, true);
  const start = (wide ? 12 : 10) + length;
  const text = new TextDecoder("latin1").decode(buffer.slice(wide ? 12 : 10, start));
  const kinds = { "<f8": Float64Array, "<i8": BigInt64Array };
  const kind = kinds[/'descr': '([^']+)'/.exec(text)?.[1]];
  if (!kind) throw new Error("An array of the result has a type that this page cannot read.");
  return new kind(buffer.slice(start));
}

// Make a field for each parameter of the choice that is a number.
function fields(parameters) {
  const named = Object.entries(parameters).filter(([, about]) => ["number", "integer"].includes(about.values));
  return named.map(([name, about]) => {
    const input = element("input");
    Object.assign(input, { id: name, type: "number", step: about.values === "integer" ? "1" : "any" });
    const label = element("label", name);
    label.append(input, element("small", about.help));
    return label;
  });
}

export async function showDecision(path, job, method, download) {
  const fetched = async (name) => numbers(await (await ask(`${path}/files/${name}.npy`)).arrayBuffer());
  by("decision").hidden = false;
  by("limits").replaceChildren(...fields(method.centers));
  const inputs = Array.from(by("limits").querySelectorAll("input"));
  const axes = method.decision_graph;
  const files = await askJson(`${path}/files`);
  const size = Math.max(0, ...files.filter((file) => axes.some(({ name }) => file.name === `${name}.npy`)).map((file) => file.size));
  const drawable = axes.length === 2 && size <= 8 * MAX_ROWS;
  if (axes.length === 2) {
    const words = `${axes[0].words} to the right, ${axes[1].words} upwards`;
    by("graph-caption").textContent = `${words[0].toUpperCase()}${words.slice(1)}; the centres are coloured.`;
    by("box").setAttribute("aria-label", `Decision graph: ${words}. Arrow keys move the box.`);
  }
  if (!drawable) {
    const why = axes.length === 2 ? `There are too many rows to draw here (${bytes(size)} of ${axes[0].words}); give` : "Give";
    by("decision-help").textContent = `${why} numbers below. The clusters change at once; the job does not run again.`;
  }
  by("graph-figure").hidden = axes.length !== 2;
  const [x, y, points] = await Promise.all([
    ...[0, 1].map((axis) => (drawable ? fetched(axes[axis].name) : new Float64Array(0))),
    askJson(`${path}/points`),
  ]);
  const before = { ...job.request.parameters, ...job.request.centers };
  const asJob = Object.fromEntries(Object.entries(before).filter(([name]) => name in method.centers));
  let choice = asJob;
  let key = newKey();
  let told = null;
  by("map-figure").hidden = !points.index.length;
  by("map-caption").textContent = `${points.index.length.toLocaleString("en")} of the rows, drawn by their first two features.`;

  const graph = new Graph(by("graph"), by("box"), axes.map(({ name }) => name), x, y, (box) => {
    for (const [name, limit] of Object.entries(box)) by(name).value = limit === null ? "" : Number(limit.toPrecision(6));
    choose(limits());
  });

  function limits() {
    return Object.fromEntries(inputs.filter((input) => input.value !== "").map((input) => [input.id, Number(input.value)]));
  }

  function paint() {
    if (axes.length === 2) graph.draw(told ? told.centers : []);
    if (told?.labels) drawMap(by("map"), points, told.labels);
    if (told) drawSizes(by("sizes"), told.sizes);
  }

  // Send one request at a time; of the choices that are made meanwhile, send only the last.
  let asking = false;
  async function choose(wanted) {
    [choice, key] = [wanted, newKey()];
    if (asking) return;
    asking = true;
    let asked;
    do {
      asked = choice;
      try {
        told = await post(`${path}/centers`, { ...asked, answer: points.index.length ? "points" : "sizes" });
        const largest = told.sizes.reduce((most, size) => Math.max(most, size), 0);
        by("count").textContent = clusters(told.n_clusters);
        by("sizes").setAttribute("aria-label", `Sizes of the clusters; the largest has ${largest.toLocaleString("en")} rows`);
        show("choice-problem", "");
        paint();
      } catch (error) {
        told = null;
        by("count").textContent = "";
        show("choice-problem", error.message);
      }
    } while (asked !== choice);
    asking = false;
    by("save").disabled = !told || choice === asJob;
    by("labels").disabled = !told;
  }

  by("limits").addEventListener("input", () => {
    const given = limits();
    graph.place(given);
    choose(given);
  });
  by("limits").addEventListener("submit", (event) => event.preventDefault());
  by("reset").addEventListener("click", () => {
    by("limits").reset();
    graph.place(null);
    choose(asJob);
  });
  by("labels").addEventListener("click", () => {
    const body = JSON.stringify({ ...choice, answer: "labels" });
    const how = { method: "POST", headers: { "Content-Type": "application/json" }, body };
    download("labels.npy", () => ask(`${path}/centers`, how));
  });
  by("save").addEventListener("click", async () => {
    by("save").disabled = true;
    by("count").textContent = "Saving ...";
    try {
      location.href = `/jobs/${(await post(`${path}/centers/save`, { ...choice, key })).id}`;
    } catch (error) {
      show("choice-problem", error.message);
      by("count").textContent = told ? clusters(told.n_clusters) : "";
      by("save").disabled = false;
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  new ResizeObserver(paint).observe(by("graph").parentElement);
  await choose(asJob);
}

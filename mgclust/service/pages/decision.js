// The decision graph: draw a box, preview the clusters of its centres, store them.

import { ask, askJson, newKey, post } from "./session.js";
import { bytes, clusters, show } from "./words.js";
import { Graph, drawMap, drawSizes } from "./drawing.js";

const MAX_ROWS = 5e6; // 80 MB of rho and delta
const by = (id) => document.getElementById(id);
const LIMITS = ["rho_min", "rho_max", "delta_min", "delta_max"];

// Parse a one-dimensional .npy file.
function numbers(buffer) {
  const head = new DataView(buffer);
  const wide = head.getUint8(6) > 1;
  const length = wide ? head.getUint32(8, true) : head.getUint16(8, true);
  const start = (wide ? 12 : 10) + length;
  const text = new TextDecoder("latin1").decode(buffer.slice(wide ? 12 : 10, start));
  const kinds = { "<f8": Float64Array, "<i8": BigInt64Array };
  const kind = kinds[/'descr': '([^']+)'/.exec(text)?.[1]];
  if (!kind) throw new Error("An array of the result is of a type that this page does not read.");
  return new kind(buffer.slice(start));
}

export async function showDecision(path, job, download) {
  const fetched = async (name) => numbers(await (await ask(`${path}/files/${name}.npy`)).arrayBuffer());
  by("decision").hidden = false;
  const files = await askJson(`${path}/files`);
  const size = files.find((file) => file.name === "rho.npy")?.size || 0;
  if (size > 8 * MAX_ROWS) {
    by("decision-help").textContent = `There are too many rows to draw here (${bytes(size)} of densities); give limits below.`;
  }
  const [rho, delta, own, points] = await Promise.all([
    size > 8 * MAX_ROWS ? new Float64Array(0) : fetched("rho"),
    size > 8 * MAX_ROWS ? new Float64Array(0) : fetched("delta"),
    fetched("centers"),
    askJson(`${path}/points`),
  ]);
  const asJob = { indices: Array.from(own, Number) };
  let choice = asJob;
  let key = newKey();
  let told = null;
  by("map-figure").hidden = !points.index.length;
  by("map-caption").textContent = `${points.index.length.toLocaleString("en")} of the rows by their first two features.`;

  const graph = new Graph(by("graph"), by("box"), rho, delta, (box) => {
    for (const name of LIMITS) by(name).value = box[name] === null ? "" : Number(box[name].toPrecision(6));
    choose(limits());
  });

  function limits() {
    const given = LIMITS.filter((name) => by(name).value !== "").map((name) => [name, Number(by(name).value)]);
    return Object.fromEntries(given);
  }

  function paint() {
    graph.draw(told ? told.centers : []);
    if (told?.labels) drawMap(by("map"), points, told.labels);
    if (told) drawSizes(by("sizes"), told.sizes);
  }

  // One request at a time; of choices made meanwhile only the last is requested.
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
    graph.place({ rho_min: 0, delta_min: 0, rho_max: null, delta_max: null, ...given });
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

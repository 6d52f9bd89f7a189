// Choose other centres by a box on the decision graph, a rank of its products, or numbers; preview and store them.

import { ask, askJson, newKey, post } from "./session.js";
import { clusters, element, show } from "./words.js";
import { Graph, Ranks, drawMap, drawSizes, number } from "./drawing.js";

const NOTHING = { centers: [], places: [], colors: [] }; // of a choice without clusters
const by = (id) => document.getElementById(id);

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
  by("decision").hidden = false;
  by("limits").replaceChildren(...fields(method.centers));
  const inputs = Array.from(by("limits").querySelectorAll("input"));
  const axes = method.decision_graph;
  const before = { ...job.request.parameters, ...job.request.centers };
  const asJob = Object.fromEntries(Object.entries(before).filter(([name]) => name in method.centers));
  let choice = asJob;
  let key = newKey();
  let told = null;
  let [graph, ranks, points] = [null, null, null]; // until they are loaded

  function limits() {
    return Object.fromEntries(inputs.filter((input) => input.value !== "").map((input) => [input.id, Number(input.value)]));
  }

  function fill(values) {
    for (const input of inputs) input.value = values[input.id] == null ? "" : Number(values[input.id].toPrecision(6));
  }

  function paint() {
    graph?.draw(told ?? NOTHING);
    ranks?.draw(told ?? NOTHING);
    if (!told) return;
    if (points?.index.length) drawMap(by("map"), points, told.labels, told.colors, namesOf(points));
    drawSizes(by("sizes"), told.sizes, told.colors);
  }

  // Name the row at the pointer, with its values.
  function name(index) {
    if (index === null) {
      by("pointed").textContent = "";
      return;
    }
    const { rows, right, up, ranked } = graph.data;
    const words = [`row ${rows[index].toLocaleString("en")}`, ...axes.map((axis, k) => `${axis.words} ${number([right, up][k][index])}`)];
    words.push(`product ${number(right[index] * up[index])}${index < ranked ? `, rank ${(index + 1).toLocaleString("en")}` : ""}`);
    const k = told ? told.centers.indexOf(rows[index]) : -1;
    if (k >= 0) words.push(`centre of cluster ${k.toLocaleString("en")}`);
    by("pointed").textContent = words.join(" · ");
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
        told = await post(`${path}/centers`, { ...asked, answer: "points" });
        const largest = told.sizes.reduce((most, size) => Math.max(most, size), 0);
        by("count").textContent = clusters(told.n_clusters);
        by("sizes").setAttribute("aria-label", `Sizes of the clusters; the largest has ${largest.toLocaleString("en")} rows`);
        show("choice-problem", "");
        show("choice-warning", asked === asJob ? "" : told.warnings.join(" "));
        paint();
      } catch (error) {
        told = null;
        by("count").textContent = "";
        show("choice-problem", error.status === 0 ? "" : error.message); // the page says once that nothing answers
        show("choice-warning", "");
      }
    } while (asked !== choice);
    asking = false;
    settle();
  }

  function settle() {
    by("save").disabled = !told || choice === asJob;
    by("labels").disabled = !told;
  }

  by("limits").addEventListener("input", () => {
    const given = limits();
    graph?.place(given);
    choose(given);
  });
  by("limits").addEventListener("submit", (event) => event.preventDefault());
  by("reset").addEventListener("click", () => {
    by("limits").reset();
    graph?.place(null);
    choose(asJob);
  });
  by("labels").addEventListener("click", () => {
    const body = JSON.stringify({ ...choice, answer: "labels" });
    const how = { method: "POST", headers: { "Content-Type": "application/json" }, body };
    download("labels.npy", () => ask(`${path}/centers`, how));
  });
  by("save").addEventListener("click", async () => {
    by("save").disabled = true;
    show("saving", "Saving ...");
    try {
      location.href = `/jobs/${(await post(`${path}/centers/save`, { ...choice, key })).id}`;
    } catch (error) {
      show("choice-problem", error.message);
      show("saving", "");
      settle();
    }
  });
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return; // the user has come back to this page as it was left
    show("saving", "");
    settle();
  });
  for (const each of document.querySelectorAll("[name=drags]")) each.addEventListener("change", () => (graph.drags = each.value));
  by("logarithmic").addEventListener("change", () => {
    graph.log = by("logarithmic").checked;
    graph.show(null);
  });
  by("nearer").addEventListener("click", () => graph.magnify(2));
  by("whole").addEventListener("click", () => graph.show(null));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  const first = choose(asJob);

  async function loadGraph() {
    if (axes.length !== 2) return;
    const data = await askJson(`${path}/graph`);
    for (const part of ["tools", "graph-figure", "ranks-figure"]) by(part).hidden = false;
    const words = `${axes[0].words} to the right, ${axes[1].words} upwards`;
    const part = `${data.rows.length.toLocaleString("en")} of the ${data.total.toLocaleString("en")} rows: those with the largest products, and a sample`;
    const rows = data.rows.length < data.total ? `${part}.` : "";
    by("graph-caption").textContent = `${words[0].toUpperCase()}${words.slice(1)}; the centres are coloured. ${rows}`;
    by("box").setAttribute("aria-label", `Decision graph: ${words}. Arrow keys move the box; + and - zoom, 0 shows the whole graph.`);
    graph = new Graph(by("graph"), by("box"), axes, data, (box) => {
      fill(box);
      choose(limits());
    }, name);
    ranks = new Ranks(by("ranks"), data, (count) => {
      fill({ n_clusters: count });
      graph.place(null);
      choose(limits());
    }, name);
    graph.place(limits());
    await first;
    paint();
    by("logarithmic").checked = graph.log;
  }

  async function loadPoints() {
    points = await askJson(`${path}/points`);
    by("map-figure").hidden = !points.index.length;
    const [across, upwards] = namesOf(points);
    by("map-caption").textContent = `${points.index.length.toLocaleString("en")} of the rows: ${across} to the right, ${upwards} upwards.`;
    paint();
  }

  await Promise.all([first, loadGraph(), loadPoints()]);
  new ResizeObserver(paint).observe(by("sizes").parentElement);
}

function namesOf(points) {
  return [0, 1].map((k) => points.names[k] || `feature ${k}`);
}

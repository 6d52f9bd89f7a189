// The panel of a sweep above its jobs: a picture of a score over a parameter, and the sweep as one.

import { ask, post } from "./session.js";
import { element, figure, show } from "./words.js";

const by = (id) => document.getElementById(id);
const LEFT = 70, RIGHT = 150, TOP = 14, BOTTOM = 40, WIDTH = 720, HEIGHT = 260;
const MOST_SERIES = 4, MOST_COMPARED = 10;
let current = null;

export function showSweep(id, jobs, score, better, changed) {
  by("sweep").hidden = !id || !jobs.length;
  if (by("sweep").hidden) return;
  const first = current?.id !== id;
  current = { id, jobs, score, better, changed };
  const names = varied(jobs);
  const select = by("sweep-x");
  if (select.dataset.names !== names.join()) {
    select.replaceChildren(...names.map((name) => element("option", name)));
    select.dataset.names = names.join();
  }
  select.closest("label").hidden = names.length < 2;
  by("sweep-title").textContent = `Sweep${jobs[0].name ? ` ${jobs[0].name}` : ""}: ${jobs.length} job${jobs.length === 1 ? "" : "s"}`;
  const active = jobs.some((job) => ["PENDING", "RUNNING"].includes(job.state));
  by("sweep-cancel").disabled = !active;
  by("sweep-delete").disabled = active;
  by("sweep-compare").textContent = jobs.length > MOST_COMPARED ? `Compare ${better ? "the best" : "the first"} ${MOST_COMPARED}` : "Compare";
  showBest();
  draw();
  if (first) listen();
}

// Return the jobs with a value of the score, the best first; the order of the list if the score does not tell.
function ranked() {
  const { jobs, score, better } = current;
  if (!better) return jobs;
  const sign = better === "lower" ? 1 : -1;
  return jobs.filter((job) => typeof job.scores?.[score] === "number").sort((one, other) => sign * (one.scores[score] - other.scores[score]));
}

function showBest() {
  const [best] = current.better ? ranked() : [];
  by("sweep-best").hidden = !best;
  if (!best) return;
  const words = varied(current.jobs).map((name) => `${name}=${best.parameters[name] ?? "default"}`).join(", ");
  const link = element("a", words || best.id.slice(0, 8));
  link.href = `/jobs/${best.id}`;
  by("sweep-best").replaceChildren(`Best ${current.better === "lower" ? "(lowest)" : "(highest)"} value, ${figure(best.scores[current.score])}: `, link);
}

// Return the names of the parameters that differ between the jobs.
function varied(jobs) {
  const names = [...new Set(jobs.flatMap((job) => Object.keys(job.parameters)))];
  return names.filter((name) => new Set(jobs.map((job) => job.parameters[name])).size > 1);
}

let listening = false;
function listen() {
  if (listening) return;
  listening = true;
  by("sweep-x").addEventListener("change", draw);
  by("sweep-compare").addEventListener("click", () => {
    location.href = `/compare?ids=${ranked().slice(0, MOST_COMPARED).map((job) => job.id).join(",")}`;
  });
  by("sweep-cancel").addEventListener("click", () => act(() => post(`/sweeps/${current.id}/cancel`, {})));
  by("sweep-delete").addEventListener("click", () => by("confirm").showModal());
  by("keep").addEventListener("click", () => by("confirm").close());
  by("delete-now").addEventListener("click", () => {
    by("confirm").close();
    act(async () => {
      await ask(`/sweeps/${current.id}`, { method: "DELETE" });
      location.href = "/";
    });
  });
}

async function act(change) {
  try {
    await change();
    current.changed();
  } catch (error) {
    show("list-problem", error.message);
  }
}

function draw() {
  const { jobs, score } = current;
  const plot = by("sweep-plot");
  const x = by("sweep-x").value;
  const points = jobs.filter((job) => typeof job.scores?.[score] === "number").map((job) => ({
    text: x ? job.parameters[x] ?? "default" : "", // if there is only one job, no parameter differs
    y: job.scores[score],
    series: varied(jobs).filter((name) => name !== x).map((name) => `${name}=${job.parameters[name] ?? "default"}`).join(", "),
    job,
  }));
  const title = by("score").selectedOptions[0]?.textContent || score;
  by("sweep-caption").textContent = points.length
    ? `${title} (y axis) over ${x || "the jobs"} (x axis), one point per job; the table lists the same values.`
    : `No job of the sweep has a value of ${title} yet.`;
  plot.replaceChildren();
  plot.toggleAttribute("hidden", !points.length);
  if (!points.length) return;
  // Numbers have places by their values, on a log axis if they span a factor of 10; other values follow each other.
  const texts = [...new Set(points.map((point) => point.text))];
  const numbers = texts.every((text) => text.trim() !== "" && Number.isFinite(Number(text)));
  const values = numbers ? texts.map(Number) : texts.map((_, k) => k);
  const log = numbers && Math.min(...values) > 0 && Math.max(...values) >= 10 * Math.min(...values);
  const place = (text) => {
    const value = numbers ? Number(text) : texts.indexOf(text);
    return log ? Math.log(value) : value;
  };
  const across = scale(texts.map(place), LEFT, WIDTH - RIGHT);
  const up = scale(points.map((point) => point.y), HEIGHT - BOTTOM, TOP);
  plot.append(shape("path", { d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }));
  let free = -Infinity; // where the next label has room
  for (const text of [...texts].sort((one, other) => place(one) - place(other))) {
    if (across(place(text)) < free) continue;
    free = across(place(text)) + 8 + 7 * Math.min(14, text.length);
    plot.append(label(text.slice(0, 14), across(place(text)), HEIGHT - BOTTOM + 18, "middle"));
  }
  plot.append(label(x, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "middle"));
  const [low, high] = [Math.min(...points.map((point) => point.y)), Math.max(...points.map((point) => point.y))];
  for (const part of low === high ? [0] : [0, 0.5, 1]) {
    const value = low + part * (high - low);
    plot.append(label(figure(Number(value.toPrecision(4))), LEFT - 8, up(value) + 4, "end"));
    plot.append(shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(value), y2: up(value) }));
  }
  const series = [...new Set(points.map((point) => point.series))];
  series.forEach((name, k) => {
    const own = points.filter((point) => point.series === name).sort((one, other) => place(one.text) - place(other.text));
    const colour = `series-${Math.min(k, MOST_SERIES - 1)}`;
    plot.append(shape("path", { class: `series ${colour}`, d: `M${own.map((point) => `${across(place(point.text))} ${up(point.y)}`).join("L")}` }));
    for (const point of own) {
      const circle = shape("circle", { class: colour, cx: across(place(point.text)), cy: up(point.y), r: 4 });
      circle.append(shape("title", {}, `${x}=${point.text}${name ? `, ${name}` : ""}: ${figure(point.y)}`));
      plot.append(circle);
    }
    if (name && k < 12) {
      const last = own[own.length - 1];
      plot.append(label(name.slice(0, 22), WIDTH - RIGHT + 10, series.length > 5 ? TOP + 14 * k + 6 : up(last.y) + 4, "start", colour));
    }
  });
}

function scale(values, from, to) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return (value) => (low === high ? (from + to) / 2 : from + 12 * Math.sign(to - from) + ((value - low) / (high - low)) * (to - from - 24 * Math.sign(to - from)));
}

function shape(name, attributes, text = "") {
  const made = document.createElementNS(by("sweep-plot").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function label(text, x, y, anchor, colour = "") {
  return shape("text", { x, y, "text-anchor": anchor, class: colour }, text);
}

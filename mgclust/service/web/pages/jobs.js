// The list of jobs. The address of the page holds everything that selects jobs, so that a list can be kept and shared.

import { ask, askJson, start, token } from "./session.js";
import { prepareForm } from "./submission.js";
import { showSweep } from "./sweep.js";
import { duration, element, figure, paceOf, show, timeOf } from "./words.js";

const PAGE = 20, SWEEP_PAGE = 100, MOST_COMPARED = 10;
const ACTIVE_POLL_MS = 2000, QUIET_POLL_MS = 10000;
const by = (id) => document.getElementById(id);
// Names in the address -> the same names in the API.
const FILTERS = ["search", "state", "method", "tag", "sweep", "owner"];

let query = new URLSearchParams(location.search);
let methods = {};
let looking = 0;
let entityTag = ""; // of the list that is shown
let listed = [];
let timer = 0;
const newer = []; // addresses of the pages before this one
const picked = new Set(); // ids of jobs to compare

const COLUMNS = [
  { name: "pick", title: "", fill: (job) => [pickBox(job)] },
  { name: "name", title: "Job", sort: "name", fill: nameOf },
  { name: "file", title: "File", fill: (job) => [filesOf(job)] },
  { name: "parameters", title: "Changed parameters", fill: (job) => [parametersOf(job)] },
  { name: "number", title: "Score", sort: () => `score:${score()}`, fill: (job) => [scoreOf(job)] },
  { name: "seconds", title: "Time", sort: "seconds", fill: (job) => [secondsOf(job)] },
  { name: "state", title: "State", sort: "state", fill: (job) => [stateOf(job)] },
  { name: "owner", title: "Owner", sort: "owner", fill: (job) => [job.owner] },
  { name: "when", title: "Submitted", sort: "", fill: (job) => [timeOf(job.created)] },
];

function pickBox(job) {
  const box = element("input");
  Object.assign(box, { type: "checkbox", checked: picked.has(job.id) });
  box.setAttribute("aria-label", `Compare ${job.name || job.method} ${job.id.slice(0, 8)}`);
  box.addEventListener("change", () => {
    if (box.checked) picked.add(job.id);
    else picked.delete(job.id);
    describePicked();
  });
  return box;
}

function describePicked() {
  by("compare").disabled = picked.size < 2 || picked.size > MOST_COMPARED;
  by("compare").textContent = picked.size ? `Compare (${picked.size})` : "Compare";
  by("compare").title = picked.size > MOST_COMPARED ? `At most ${MOST_COMPARED} jobs can be compared.` : "";
}

function nameOf(job) {
  const link = element("a", job.name || job.method);
  link.href = `/jobs/${job.id}`;
  const notes = [job.name ? job.method : "", job.id.slice(0, 8)];
  if (job.parent) notes.push(`from ${job.parent.slice(0, 8)}`);
  if (job.warnings?.length) notes.push(`${figure(job.warnings.length)} warning${job.warnings.length === 1 ? "" : "s"}`);
  const found = [link];
  if (job.sweep && job.sweep !== query.get("sweep")) found.push(filterButton("sweep", job.sweep, "sweep"));
  found.push(...job.tags.map((tag) => filterButton("tag", tag, `#${tag}`)), element("span", ` ${notes.filter(Boolean).join(" · ")}`, "quiet"), element("span", ` ${filesOf(job)}`, "quiet on-phones"));
  return found;
}

function filterButton(name, value, text) {
  const button = element("button", text, "tag");
  button.type = "button";
  button.addEventListener("click", () => go({ [name]: value }));
  return button;
}

function filesOf(job) {
  return job.n_sources > 1 ? `${job.sources[0]} and ${job.n_sources - 1} more` : job.sources[0] || "";
}

// The parameters in which the listed jobs differ come first.
function parametersOf(job) {
  const differs = (name) => listed.some((other) => other.parameters[name] !== job.parameters[name]);
  const names = Object.keys(job.parameters);
  const order = [...names.filter(differs), ...names.filter((name) => !differs(name))];
  return order.map((name) => [name, job.parameters[name]]).map(([name, value]) => `${name}=${value}`).join(", ");
}

function scoreOf(job) {
  const value = job.scores?.[score()];
  return typeof value === "number" ? figure(value) : "";
}

function secondsOf(job) {
  return job.started && job.finished ? duration(job.finished - job.started) : "";
}

function stateOf(job) {
  const state = element("span", job.state, `state ${job.state}`);
  if (!["PENDING", "RUNNING"].includes(job.state) || !job.progress) return state;
  const bar = element("progress");
  bar.setAttribute("aria-label", job.progress.stage || "progress");
  if (typeof job.progress.fraction === "number") bar.value = job.progress.fraction;
  bar.title = state.title = [job.progress.stage, paceOf(job.progress)].filter(Boolean).join(" · ");
  const both = element("span");
  both.append(state, bar);
  return both;
}

// The score that is shown: the chosen score, or else one that most of the listed jobs have.
function score() {
  return query.get("score") || by("score").value || "n_clusters";
}

function fillScores(jobs) {
  const counts = new Map();
  for (const job of jobs) {
    for (const [name, value] of Object.entries(job.scores || {})) if (typeof value === "number") counts.set(name, (counts.get(name) || 0) + 1);
  }
  const chosen = query.get("score");
  if (chosen && !counts.has(chosen)) counts.set(chosen, 0);
  if (!counts.size) counts.set("n_clusters", 0);
  const names = [...counts.keys()].sort();
  const title = (name) => Object.values(methods).map((about) => about.scores[name]).find(Boolean) || name.replaceAll("_", " ");
  by("score").replaceChildren(...names.map((name) => {
    const option = element("option", title(name));
    option.value = name;
    return option;
  }));
  // If equally many jobs have two scores, a silhouette comes first.
  const rank = (name) => 4 * counts.get(name) + (name.includes("silhouette") ? 2 : 0) + (name === "n_clusters" ? 1 : 0);
  const best = names.reduce((one, other) => (rank(other) > rank(one) ? other : one));
  // A sweep shows a score by which its jobs can be compared, if they have one.
  const told = Object.values(methods).flatMap((about) => Object.keys(about.better));
  const comparable = query.get("sweep") && told.find((name) => counts.get(name));
  by("score").value = chosen || comparable || best;
}

// "higher", "lower", or undefined if the score does not tell which of two results is better.
function better(name) {
  return Object.values(methods).map((about) => about.better[name]).find(Boolean);
}

function columns() {
  const owners = new Set(listed.map((job) => job.owner));
  return COLUMNS.filter((column) => column.name !== "owner" || owners.size > 1 || query.get("owner"));
}

function heads() {
  const sort = query.get("sort") || "";
  by("heads").replaceChildren(...columns().map((column) => {
    const cell = element("th", column.sort === undefined ? column.title : "", column.name);
    cell.scope = "col";
    if (column.name === "pick") cell.append(element("span", "Compare", "skip"));
    if (column.sort === undefined) return cell;
    const key = typeof column.sort === "function" ? column.sort() : column.sort;
    const button = element("button", column.name === "number" ? by("score").selectedOptions[0]?.textContent || "Score" : column.title);
    button.type = "button";
    button.title = key ? `Sort by ${button.textContent} (the newest 1,000 jobs that match)` : "The newest jobs first";
    const down = sort === `-${key}`, up = sort === key;
    if (up || (key && down)) cell.setAttribute("aria-sort", key && up ? "ascending" : "descending");
    // Scores begin with the best value, times with the largest, texts with the first.
    const downFirst = /^(score|seconds)/.test(key) && !(column.name === "number" && better(score()) === "lower");
    const first = downFirst ? `-${key}` : key;
    button.addEventListener("click", () => go({ sort: sort === first && key ? (first === key ? `-${key}` : key) : first }));
    cell.append(button);
    return cell;
  }));
}

function rowsOf(job) {
  const row = element("tr");
  for (const column of columns()) {
    const cell = element("td", "", column.name);
    cell.append(...column.fill(job));
    if (["file", "parameters", "name"].includes(column.name)) cell.title = cell.textContent;
    row.append(cell);
  }
  if (!job.error) return [row];
  const more = element("tr", "", "error"), text = element("td", job.error);
  text.colSpan = columns().length;
  more.append(text);
  return [row, more];
}

async function look() {
  const turn = ++looking;
  clearTimeout(timer);
  const size = query.get("sweep") ? SWEEP_PAGE : PAGE;
  const asked = new URLSearchParams({ limit: size + 1 });
  for (const name of [...FILTERS, "sort", query.get("sort") ? "skip" : "before"]) if (query.get(name)) asked.set(name, query.get(name));
  try {
    const answer = await ask(`/jobs?${asked}`, entityTag ? { headers: { "If-None-Match": entityTag } } : {});
    if (turn !== looking) return; // another list was requested meanwhile
    show("list-problem", "");
    by("live").textContent = `Updated at ${new Date().toLocaleTimeString()}`;
    if (answer.status !== 304) {
      entityTag = answer.headers.get("ETag") || "";
      draw(await answer.json(), size);
    }
  } catch (error) {
    if (turn === looking) show("list-problem", error.message);
  }
  if (turn !== looking) return;
  const active = listed.some((job) => ["PENDING", "RUNNING"].includes(job.state));
  timer = setTimeout(() => (token() && !document.hidden ? look() : null), active ? ACTIVE_POLL_MS : QUIET_POLL_MS);
}

function draw(found, size) {
  listed = found.slice(0, size);
  fillScores(listed);
  heads();
  const focused = document.activeElement?.closest?.("#jobs a")?.getAttribute("href");
  by("jobs").replaceChildren(...listed.flatMap(rowsOf));
  if (focused) by("jobs").querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  by("jobs").closest("table").hidden = by("filters").hidden = false;
  describeNone(found);
  by("older").disabled = found.length <= size;
  by("newer").disabled = !query.get("before") && !query.get("skip");
  describeFilters();
  showSweep(query.get("sweep"), listed, score(), better(score()), look);
}

function describeNone(found) {
  const filtered = FILTERS.some((name) => query.get(name)) || query.get("before") || query.get("skip");
  by("none").hidden = found.length > 0;
  by("jobs").closest("table").hidden = !found.length;
  if (found.length) return;
  if (filtered) {
    by("none").textContent = "No job matches. ";
    const all = element("a", "Show all jobs");
    all.href = "/";
    by("none").append(all);
    return;
  }
  by("filters").hidden = true;
  by("none").replaceChildren(
    element("p", "No jobs yet: open New job above, choose a file of rows (.npy, .csv, .nii.gz and others), and submit."),
    element("p", "Or send a job from a terminal or a notebook:"),
    element("pre", "mgclust submit density-peaks points.npy --wait\nmgclust.Service().submit(\"density-peaks\", \"points.npy\")"),
  );
  by("new-job").open = true;
}

function describeFilters() {
  const parts = ["tag", "sweep", "owner"].filter((name) => query.get(name)).map((name) => `${name} ${query.get(name)}`);
  by("filtered").hidden = !parts.length;
  by("filtered").textContent = parts.length ? `Only ${parts.join(", ")}. ` : "";
  const all = element("a", "Show all jobs");
  all.href = "/";
  by("filtered").append(all);
}

// Change the query of the address, from the first page on, and show its jobs.
function go(changes) {
  query.delete("before");
  query.delete("skip");
  newer.length = 0;
  turnTo(changes);
}

function turnTo(changes, replace = false) {
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  readAddress();
}

function readAddress() {
  query = new URLSearchParams(location.search);
  entityTag = "";
  by("search").value = query.get("search") || "";
  by("state").value = query.get("state") || "";
  by("of-method").value = query.get("method") || "";
  look();
}

let typing = 0;
by("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => go({ search: by("search").value.trim() }), 250);
});
by("filters").addEventListener("submit", (event) => event.preventDefault());
by("state").addEventListener("change", () => go({ state: by("state").value }));
by("of-method").addEventListener("change", () => go({ method: by("of-method").value }));
by("score").addEventListener("change", () => {
  const sorted = query.get("sort")?.replace(/^(-?)score:.*/, (_, sign) => `${sign}score:${by("score").value}`);
  go({ score: by("score").value, ...(sorted ? { sort: sorted } : {}) });
});
by("compare").addEventListener("click", () => { location.href = `/compare?ids=${[...picked].join(",")}`; });
by("older").addEventListener("click", () => {
  newer.push(location.search);
  const last = listed[listed.length - 1];
  if (query.get("sort")) turnTo({ skip: String(Number(query.get("skip") || 0) + listed.length) });
  else turnTo({ before: `${last.created},${last.id}` });
});
by("newer").addEventListener("click", () => {
  if (!newer.length) go({});
  else {
    query = new URLSearchParams(newer.pop());
    turnTo({});
  }
});
addEventListener("popstate", readAddress);
document.addEventListener("visibilitychange", () => !document.hidden && token() && look());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    by("search").focus();
  }
  if (!["ArrowDown", "ArrowUp"].includes(event.key) || !event.target.closest("#jobs a, #search")) return;
  const links = [...document.querySelectorAll("#jobs .name a")];
  const next = links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
  if (next < -1 || !links.length) return;
  event.preventDefault();
  (next < 0 ? by("search") : links[Math.min(next, links.length - 1)]).focus();
});

let begun = false;
start(async () => {
  if (begun) {
    look();
    return;
  }
  begun = true;
  try {
    methods = await askJson("/methods");
  } catch (error) {
    show("list-problem", error.message);
  }
  for (const name of Object.keys(methods)) by("of-method").append(element("option", name));
  prepareForm(methods, query.get("from"));
  if (query.get("from")) turnTo({ from: "" }, true); // the form is filled once
  else readAddress();
});

// The page that compares 2 to 10 jobs: parameters and scores side by side, agreement of the labels, pictures.

import { ask, askJson, post, start } from "./session.js";
import { element, figure, show, sourceName } from "./words.js";

const MAX_PICTURE_BYTES = 5e6;
const by = (id) => document.getElementById(id);
const ids = [...new Set((new URLSearchParams(location.search).get("ids") || "").split(",").filter(Boolean))];
let jobs = [], methods = {}, files = [];

const path = (id) => `/jobs/${encodeURIComponent(id)}`;
const titleOf = (job) => `${job.name || job.method} ${job.id.slice(0, 8)}`;

function link(job) {
  const made = element("a", titleOf(job));
  made.href = `/jobs/${job.id}`;
  return made;
}

function head(where, first) {
  const row = element("tr");
  row.append(element("th", first), ...jobs.map((job) => {
    const cell = element("th");
    cell.scope = "col";
    cell.append(link(job));
    return cell;
  }));
  where.replaceChildren(row);
}

function text(value, words = figure) {
  if (value === undefined || value === null) return "";
  if (typeof value === "object") return Array.isArray(value) ? value.map((each) => text(each, words)).join(", ") : sourceName(value);
  return words(value);
}

// Return rows of facts: a name, and the value of each job.
function facts() {
  const rows = [["method", jobs.map((job) => job.method)], ["state", jobs.map((job) => job.state)]];
  rows.push(["files", jobs.map((job) => job.request.sources.map(sourceName).join(", "))]);
  const more = (group, title, words = String) => {
    const names = new Set(jobs.flatMap((job) => Object.keys(group(job) || {})));
    for (const name of names) rows.push([title(name), jobs.map((job) => text((group(job) || {})[name], words))]);
  };
  const withDefault = (job) => ({ ...defaults(job), ...job.request.parameters });
  more(withDefault, (name) => name);
  more((job) => job.request.centers, (name) => `centres: ${name}`);
  more((job) => job.request.options, (name) => name);
  for (const name of ["mask", "confounds", "surfaces", "atlas"]) {
    if (jobs.some((job) => job.request[name])) rows.push([name, jobs.map((job) => text(job.request[name]))]);
  }
  rows.push(["seconds", jobs.map((job) => (job.finished && job.started ? figure(Number((job.finished - job.started).toPrecision(3))) : ""))]);
  rows.push(["warnings", jobs.map((job) => (job.warnings || []).join(" "))]);
  const scoreTitle = (name) => jobs.map((job) => methods[job.method]?.scores[name]).find(Boolean) || name.replaceAll("_", " ");
  more((job) => Object.fromEntries(Object.entries(job.scores || {}).filter(([, value]) => typeof value !== "object" || value === null)), scoreTitle, figure);
  return rows;
}

// The default of a parameter matters only if another of the jobs gives the parameter.
function defaults(job) {
  const given = new Set(jobs.flatMap((each) => Object.keys(each.request.parameters || {})));
  const about = methods[job.method]?.parameters || {};
  return Object.fromEntries(Object.entries(about).filter(([name, option]) => given.has(name) && option.default !== null).map(([name, option]) => [name, option.default]));
}

function showFacts() {
  head(by("jobs"), "");
  const rows = facts().map(([name, values]) => {
    const different = new Set(values).size > 1;
    const row = element("tr", "", different ? "different" : "");
    row.hidden = by("only").checked && !different;
    const title = element("th", name);
    title.scope = "row";
    if (different) title.append(element("span", " differs", "quiet"));
    row.append(title, ...values.map((value) => element("td", value)));
    return row;
  });
  by("facts").replaceChildren(...rows);
}

async function showAgreement() {
  const told = await post("/jobs/compare", { ids: jobs.map((job) => job.id) });
  by("notes").replaceChildren(...told.notes.map((note) => element("li", note)));
  head(by("agreement-jobs"), "");
  by("agreement").replaceChildren(...told.ari.map((values, k) => {
    const row = element("tr"), title = element("th");
    title.scope = "row";
    title.append(link(jobs[k]));
    row.append(title, ...values.map((value) => element("td", value === null ? "-" : value.toFixed(4))));
    return row;
  }));
}

async function findPictures() {
  files = await Promise.all(jobs.map(async (job) => (job.state === "SUCCEEDED" ? askJson(`${path(job.id)}/files`) : [])));
  const names = files.map((own) => own.filter((file) => file.name.endsWith(".png") && file.size <= MAX_PICTURE_BYTES).map((file) => file.name));
  const count = (name) => names.filter((own) => own.includes(name)).length;
  const all = [...new Set(names.flat())].sort((one, other) => count(other) - count(one));
  by("picture").replaceChildren(...all.map((name) => element("option", name)));
  by("choose-picture").hidden = !all.length;
  if (!all.length) by("pictures").textContent = "The results have no pictures.";
  else await showPictures();
}

async function showPictures() {
  const name = by("picture").value;
  for (const old of by("pictures").querySelectorAll("img")) URL.revokeObjectURL(old.src);
  const figures = await Promise.all(jobs.map(async (job, k) => {
    const made = element("figure"), caption = element("figcaption");
    caption.append(link(job));
    if (files[k].some((file) => file.name === name)) {
      const image = element("img");
      image.src = URL.createObjectURL(await (await ask(`${path(job.id)}/files/${name.split("/").map(encodeURIComponent).join("/")}`)).blob());
      image.alt = `${name} of ${titleOf(job)}`;
      made.append(image);
    } else caption.append(" (no such picture)");
    made.append(caption);
    return made;
  }));
  by("pictures").replaceChildren(...figures);
}

by("only").addEventListener("change", showFacts);
by("picture").addEventListener("change", () => showPictures().catch((error) => show("problem", error.message)));

start(async () => {
  show("problem", "");
  if (ids.length < 2 || ids.length > 10) {
    show("problem", "Choose 2 to 10 jobs in the list, then Compare.");
    return;
  }
  try {
    [methods, ...jobs] = await Promise.all([askJson("/methods"), ...ids.map((id) => askJson(path(id)))]);
    showFacts();
  } catch (error) {
    show("problem", error.message);
    return;
  }
  for (const part of [showAgreement, findPictures]) part().catch((error) => show("problem", error.message));
});

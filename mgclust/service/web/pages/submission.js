// The form that submits a job or a sweep, with the fields of `/methods`. It can begin with the request of a job.

import { ask, askJson, headers, newKey, post } from "./session.js";
import { bytes, element, show, sourceName } from "./words.js";

const MAX_HASHED_BYTES = 256e6; // larger files are sent without asking whether the service has them
const by = (id) => document.getElementById(id);
const GROUPS = ["parameters", "options", "resources"]; // names in the API and on the page
const SEVERAL = ["confounds", "surfaces", "atlas"];
let methods = {};
let shown = ""; // the method whose fields are shown
let sent = []; // ids of the uploads that this submission has made
const kept = {}; // sources of the job that the form began with, by field; parameters have a dot before their names

export async function prepareForm(described, from) {
  methods = described;
  by("method").replaceChildren(...Object.keys(methods).map((name) => element("option", name)));
  by("method").addEventListener("change", describe);
  by("submission").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  if (Object.keys(methods).length) describe();
  if (from) await fill(from);
}

// Fill the form with the request of a job.
async function fill(id) {
  let job;
  try {
    job = await askJson(`/jobs/${encodeURIComponent(id)}`);
  } catch (error) {
    show("list-problem", error.message);
    return;
  }
  const { request } = job;
  if (!methods[job.method]) return;
  by("method").value = job.method;
  describe();
  for (const group of GROUPS) {
    for (const [name, value] of Object.entries(request[group] || {})) {
      if (value !== null && typeof value === "object" && !Array.isArray(value)) kept[`.${name}`] = [value];
      else setField(group, name, String(value));
    }
  }
  kept.files = request.sources;
  if (request.mask) kept.mask = [request.mask];
  for (const name of SEVERAL) if (request[name]) kept[name] = request[name];
  by("priority").value = String(Math.min(0, job.priority));
  by("report").value = String(request.report !== false);
  by("results-to").value = request.results_to || "";
  by("job-name").value = job.name || "";
  by("job-tags").value = job.tags.join(", ");
  describeKept();
  by("from").textContent = `As job ${job.name || job.id.slice(0, 8)}, with its files. Change something, then submit.`;
  by("from").hidden = false;
  by("new-job").open = true;
  by("submission").querySelector("button[type=submit]").focus({ preventScroll: true });
}

// Show the files that the form takes from the job, each with a button that leaves it out.
function describeKept() {
  const chips = Object.entries(kept).flatMap(([field, sources]) => sources.map((source) => {
    const chip = element("span", `${field === "files" ? "file" : field.replace(/^\./, "")}: ${sourceName(source)}`, "source");
    const button = element("button", "Remove");
    button.type = "button";
    button.setAttribute("aria-label", `Remove ${sourceName(source)}`);
    button.addEventListener("click", () => {
      kept[field] = kept[field].filter((each) => each !== source);
      describeKept();
    });
    chip.append(button);
    return chip;
  }));
  by("kept").replaceChildren(...chips);
  by("kept").hidden = !chips.length;
}

function setField(group, name, value) {
  const input = by(group).querySelector(`[data-name="${CSS.escape(name)}"]:not([type=file])`);
  if (!input) return;
  input.value = value;
  if (input.tagName === "SELECT" && input.value !== value) input.value = ""; // not a choice of this method
}

// Show the fields of the chosen method. What was entered stays, also for methods that do not have the field.
const entered = {};

function describe() {
  if (shown) for (const group of GROUPS) entered[group] = { ...entered[group], ...chosen(group, shown) };
  shown = by("method").value;
  const method = methods[shown];
  by("summary").textContent = method.summary;
  const chosenFiles = new Map([...by("parameters").querySelectorAll("input[type=file]")].map((input) => [input.dataset.name, input]));
  for (const group of GROUPS) {
    by(group).replaceChildren(...Object.entries(method[group]).map(([name, about]) => field(name, about)));
    for (const [name, value] of Object.entries(entered[group] || {})) setField(group, name, String(value));
  }
  for (const input of by("parameters").querySelectorAll("input[type=file]")) {
    const before = chosenFiles.get(input.dataset.name);
    if (before?.files.length) input.files = before.files;
  }
  for (const each of document.querySelectorAll(".of-rows")) each.hidden = method.reads === "graph";
  const names = Object.entries(method.parameters).filter(([, about]) => about.values !== "file").map(([name]) => name);
  for (const select of document.querySelectorAll(".vary")) {
    const before = select.value;
    select.replaceChildren(element("option", ""), ...names.map((name) => element("option", name)));
    select.value = names.includes(before) ? before : "";
  }
}

function field(name, about) {
  const label = element("label", name);
  const choices = about.values === "flag" ? ["false", "true"] : about.choices;
  let input;
  if (choices.length) {
    input = element("select");
    if (about.default === null) input.append(element("option", ""));
    for (const value of choices) input.append(element("option", value));
    input.value = about.default === null ? "" : String(about.default);
  } else {
    input = element("input");
    input.autocomplete = "off";
    if (about.values === "integer") input.inputMode = "numeric";
    if (about.values === "number") input.inputMode = "decimal";
    input.placeholder = about.default === null ? "" : String(about.default);
  }
  if (about.values === "file") input.type = "file";
  input.dataset.name = name;
  label.append(input, element("small", about.help));
  if (!about.values.endsWith("|FILE")) return label;
  const both = element("div", "", "both");
  const other = element("label", `or a file of ${name}`);
  const file = element("input");
  Object.assign(file, { type: "file", accept: ".npy" });
  file.dataset.name = name;
  other.append(file);
  both.append(label, other);
  return both;
}

// Convert input for the API; text that is not a number stays text, which the service rejects.
function typed(text, about) {
  if (about.values === "flag") return text === "true";
  const number = Number(text);
  return /integer|number/.test(about.values) && text.trim() && !Number.isNaN(number) ? number : text;
}

// Return the values of a group of fields that are not defaults.
function chosen(group, method = by("method").value) {
  const about = methods[method][group];
  const given = {};
  for (const input of by(group).querySelectorAll("[data-name]")) {
    const name = input.dataset.name;
    if (input.type !== "file" && input.value !== "" && input.value !== String(about[name].default)) given[name] = typed(input.value, about[name]);
  }
  return given;
}

// Return what a field names: chosen files, then paths on the service that a separator separates; without both, the files
// of the job that the form began with.
function namedIn(files, path, separator = null) {
  const named = [...by(files).files];
  for (const part of separator ? by(path).value.split(separator) : [by(path).value]) {
    if (part.trim()) named.push({ path: part.trim(), name: part.trim().split("/").pop() });
  }
  return named.length ? named : kept[files] || [];
}

// Return the request with `File` objects in the place of sources.
function requestOf() {
  const method = methods[by("method").value];
  const request = {
    method: by("method").value, priority: Number(by("priority").value), report: by("report").value === "true", key: newKey(),
  };
  if (by("job-name").value.trim()) request.name = by("job-name").value.trim();
  if (by("results-to").value.trim()) request.results_to = by("results-to").value.trim();
  const tags = by("job-tags").value.split(/[\s,]+/).map((tag) => tag.replace(/^#/, "")).filter(Boolean);
  if (tags.length) request.tags = [...new Set(tags)];
  for (const group of GROUPS) request[group] = chosen(group);
  for (const [field, sources] of Object.entries(kept)) {
    const name = field.slice(1);
    if (field.startsWith(".") && name in method.parameters && sources.length && !(name in request.parameters)) [request.parameters[name]] = sources;
  }
  for (const input of by("parameters").querySelectorAll("input[type=file]")) {
    for (const file of input.files) request.parameters[input.dataset.name] = file;
  }
  request.sources = namedIn("files", "path");
  if (!request.sources.length) throw new Error("Choose a file, or name a path on the service.");
  if (method.reads !== "graph") {
    const masks = namedIn("mask", "mask-path");
    if (masks.length > 1) throw new Error("Choose a mask's file or name its path, not both.");
    if (masks.length) [request.mask] = masks;
    for (const name of SEVERAL) {
      const several = namedIn(name, `${name}-path`, ",");
      if (several.length) request[name] = several;
    }
  }
  const vary = varied(method);
  if (vary) {
    for (const name of Object.keys(vary)) delete request.parameters[name];
    request.vary = vary;
  }
  return request;
}

// Return the values of a sweep by parameter, or null if the form describes one job.
function varied(method) {
  const selects = [...document.querySelectorAll(".vary")], inputs = [...document.querySelectorAll(".values")];
  const vary = {};
  selects.forEach((select, k) => {
    const values = inputs[k].value.split(",").map((value) => value.trim()).filter(Boolean);
    if (values.length && !select.value) throw new Error("Choose the parameter whose values you gave.");
    if (select.value in vary) throw new Error(`${select.value} varies twice; name each parameter once.`);
    if (select.value && values.length) vary[select.value] = values.map((value) => typed(value, method.parameters[select.value]));
  });
  return Object.keys(vary).length ? vary : null;
}

// Replace the `File` objects of a request.
async function withFiles(request, replace) {
  const one = async (value) => (value instanceof File ? replace(value) : value);
  const found = { ...request, parameters: {} };
  for (const [name, value] of Object.entries(request.parameters)) found.parameters[name] = await one(value);
  for (const name of ["sources", ...SEVERAL]) {
    if (!request[name]) continue;
    found[name] = [];
    for (const value of request[name]) found[name].push(await one(value));
  }
  if (request.mask) found.mask = await one(request.mask);
  return found;
}

async function submit() {
  const button = by("submission").querySelector("button[type=submit]");
  button.disabled = true;
  show("problem", "");
  sent = [];
  try {
    const request = requestOf();
    const { vary, ...plain } = await withFiles(request, (file) => ({ upload: "later", name: nameFor(file) }));
    const first = Object.fromEntries(Object.entries(vary || {}).map(([name, values]) => [name, values[0]]));
    await ask("/jobs/check", jsonBody({ ...plain, parameters: { ...plain.parameters, ...first } })); // before files are sent
    const complete = await withFiles(request, async (file) => ({ upload: await upload(file), name: nameFor(file) }));
    location.href = vary ? `/?sweep=${(await post("/sweeps", complete)).id}` : `/jobs/${(await post("/jobs", complete)).id}`;
  } catch (error) {
    show("problem", error.message);
    by("problem").scrollIntoView({ block: "nearest" });
    // A rejected job leaves no files. After a broken connection, the job may exist and need them.
    if (error.status >= 400 && error.status < 500) {
      for (const id of sent) ask(`/uploads/${id}`, { method: "DELETE" }).catch(() => {});
    }
  } finally {
    button.disabled = false;
    by("sent").hidden = true;
    by("sending").textContent = "";
  }
}

function jsonBody(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

// The name of a file for display, without the characters that the service rejects (HIDDEN in patterns.py).
function nameFor(file) {
  return file.name.replace(/[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "_").slice(0, 255);
}

// Return the id of an upload with this content: one that the service has, or a new one.
async function upload(file) {
  const name = file.name.replace(/[^A-Za-z0-9._-]/g, "_").replace(/^[^A-Za-z0-9]+/, "").slice(-200) || "data";
  if (crypto.subtle && file.size <= MAX_HASHED_BYTES) { // browsers offer it to pages of https and of this machine
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
    const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
    try {
      const [known] = await askJson(`/uploads?${new URLSearchParams({ sha256, name })}`);
      if (known) return known.id;
    } catch (error) {
      if (error.status !== 403) throw error; // a token may submit without reading
    }
  }
  const answer = await send(file, name);
  if (answer.new) sent.push(answer.id);
  return answer.id;
}

// XMLHttpRequest is used instead of fetch, because only it reports how much has been sent.
function send(file, name) {
  const bar = by("sent");
  bar.hidden = false;
  bar.value = 0;
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/v1/uploads/${name}`);
    for (const [header, value] of Object.entries(headers())) request.setRequestHeader(header, value);
    request.upload.addEventListener("progress", (event) => {
      bar.value = event.loaded / event.total;
      by("sending").textContent = `${file.name}: ${bytes(event.loaded)} of ${bytes(event.total)}`;
    });
    request.addEventListener("load", () => {
      let answer = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        // not an answer of the service itself
      }
      if (request.status === 201) resolve(answer);
      else reject(new Error(answer.error || `The service answered ${request.status}.`));
    });
    request.addEventListener("error", () => reject(new Error(`${file.name} could not be sent; is the service running?`)));
    request.send(file);
  });
}

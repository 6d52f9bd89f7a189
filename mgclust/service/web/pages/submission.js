// The form that submits a job, with the fields of `/methods`.

import { askJson, headers, newKey, post } from "./session.js";
import { bytes, element, show } from "./words.js";

const by = (id) => document.getElementById(id);
const GROUPS = ["parameters", "options", "resources"]; // names in the API and on the page
let methods = {};

export async function prepareForm() {
  try {
    methods = await askJson("/methods");
  } catch (error) {
    show("problem", error.message);
    return;
  }
  by("method").replaceChildren(...Object.keys(methods).map((name) => element("option", name)));
  by("method").addEventListener("change", describe);
  by("submission").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  describe();
}

function describe() {
  const method = methods[by("method").value];
  by("summary").textContent = method.summary;
  for (const group of GROUPS) {
    by(group).replaceChildren(...Object.entries(method[group]).map(([name, about]) => field(name, about)));
  }
  for (const each of document.querySelectorAll(".of-rows")) each.hidden = method.reads === "graph";
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
function chosen(group) {
  const about = methods[by("method").value][group];
  const given = {};
  for (const input of by(group).querySelectorAll("[data-name]")) {
    const name = input.dataset.name;
    if (input.type !== "file" && input.value !== "" && input.value !== String(about[name].default)) given[name] = typed(input.value, about[name]);
  }
  return given;
}

// Return the sources from a field for files, or from a field for paths on the service that a separator separates.
async function sourcesOf(files, path, separator = null) {
  const sources = [];
  for (const file of by(files).files) sources.push({ upload: await upload(file), name: file.name });
  const text = by(path).value;
  for (const part of separator ? text.split(separator) : [text]) {
    const named = part.trim();
    if (named) sources.push({ path: named, name: named.split("/").pop() });
  }
  return sources;
}

async function submit() {
  const button = by("submission").querySelector("button[type=submit]");
  button.disabled = true;
  show("problem", "");
  try {
    const request = {
      method: by("method").value, priority: Number(by("priority").value), report: by("report").value === "true",
      key: newKey(),
    };
    for (const group of GROUPS) request[group] = chosen(group);
    for (const input of by("parameters").querySelectorAll("input[type=file]")) {
      for (const file of input.files) request.parameters[input.dataset.name] = { upload: await upload(file), name: file.name };
    }
    request.sources = await sourcesOf("files", "path");
    if (!request.sources.length) throw new Error("Choose a file, or name a path on the service.");
    if (methods[request.method].reads !== "graph") {
      const masks = await sourcesOf("mask", "mask-path");
      if (masks.length > 1) throw new Error("Choose a mask's file or name its path, not both.");
      if (masks.length) request.mask = masks[0];
      for (const name of ["confounds", "surfaces", "atlas"]) {
        const several = await sourcesOf(name, `${name}-path`, ",");
        if (several.length) request[name] = several;
      }
    }
    location.href = `/jobs/${(await post("/jobs", request)).id}`;
  } catch (error) {
    show("problem", error.message);
    by("problem").scrollIntoView({ block: "nearest" });
  } finally {
    button.disabled = false;
    by("sent").hidden = true;
    by("sending").textContent = "";
  }
}

// XMLHttpRequest is used instead of fetch, because only it reports how much has been sent.
function upload(file) {
  const name = file.name.replace(/[^A-Za-z0-9._-]/g, "_").replace(/^[^A-Za-z0-9]+/, "").slice(-200) || "data";
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
      if (request.status === 201) resolve(answer.id);
      else reject(new Error(answer.error || `The service answered ${request.status}.`));
    });
    request.addEventListener("error", () => reject(new Error(`${file.name} could not be sent; is the service running?`)));
    request.send(file);
  });
}

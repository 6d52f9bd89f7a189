// The form that submits a job; its fields are those that the service names.

import { askJson, headers, post } from "./session.js";
import { bytes, element, show } from "./words.js";

const by = (id) => document.getElementById(id);
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
  by("parameters").replaceChildren(...Object.entries(method.parameters).map(([name, about]) => field(name, about)));
  for (const each of document.querySelectorAll(".of-rows")) each.hidden = method.reads === "graph";
  for (const each of document.querySelectorAll(".of-graphs")) each.hidden = method.reads !== "graph";
}

function field(name, about) {
  const label = element("label", name);
  const choices = about.values.includes("|") && !about.values.includes("FILE") ? about.values.split("|") : null;
  let input;
  if (choices || about.values === "flag") {
    input = element("select");
    for (const value of choices || ["false", "true"]) input.append(element("option", value));
    input.value = String(about.default);
  } else {
    input = element("input");
    input.autocomplete = "off";
    const numeric = about.values === "integer" || about.values === "number";
    if (numeric) {
      input.inputMode = about.values === "integer" ? "numeric" : "decimal";
    }
    input.placeholder = about.default === null ? "" : String(about.default);
  }
  input.dataset.parameter = name;
  label.append(input, element("small", about.help));
  return label;
}

// What was typed as the service takes it; what is no number stays text, which it then refuses in a sentence.
function typed(text, about) {
  if (about.values === "flag") return text === "true";
  const number = Number(text);
  return /integer|number/.test(about.values) && text.trim() && !Number.isNaN(number) ? number : text;
}

function chosenParameters() {
  const about = methods[by("method").value].parameters;
  const chosen = {};
  for (const input of by("parameters").querySelectorAll("[data-parameter]")) {
    const name = input.dataset.parameter;
    if (input.value !== "" && input.value !== String(about[name].default)) chosen[name] = typed(input.value, about[name]);
  }
  return chosen;
}

function options() {
  const chosen = {};
  for (const name of ["columns", "standardize", "n_nodes"]) {
    const input = by(name);
    if (input.value && !input.closest("label").hidden) chosen[name] = name === "n_nodes" ? Number(input.value) : input.value;
  }
  return chosen;
}

async function submit() {
  const button = by("submission").querySelector("button[type=submit]");
  button.disabled = true;
  show("problem", "");
  try {
    const sources = [];
    for (const file of by("files").files) sources.push({ upload: await upload(file) });
    if (by("path").value.trim()) sources.push({ path: by("path").value.trim() });
    if (!sources.length) throw new Error("Choose a file, or name a path on the service.");
    const job = await post("/jobs", {
      method: by("method").value, sources, parameters: chosenParameters(), options: options(),
      priority: Number(by("priority").value), key: Array.from(crypto.getRandomValues(new Uint32Array(4))).join("-"),
    });
    location.href = `/jobs/${job.id}`;
  } catch (error) {
    show("problem", error.message);
    by("problem").scrollIntoView({ block: "nearest" });
  } finally {
    button.disabled = false;
    by("sent").hidden = true;
    by("sending").textContent = "";
  }
}

// XMLHttpRequest and not fetch: only it tells how much has been sent.
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
        // not the service's own answer
      }
      if (request.status === 201) resolve(answer.id);
      else reject(new Error(answer.error || `The service answered ${request.status}.`));
    });
    request.addEventListener("error", () => reject(new Error(`${file.name} could not be sent; is the service running?`)));
    request.send(file);
  });
}

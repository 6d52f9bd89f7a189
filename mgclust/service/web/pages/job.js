// The page of a job: its progress, its error, its result.

import { showActions, showNaming } from "./actions.js";
import { showDecision } from "./recenter.js";
import { MAX_BLOB_BYTES, fitToReport, save, showScores } from "./result.js";
import { ask, askJson, events, post, start } from "./session.js";
import { FAULTS, bytes, duration, element, facts, paceOf, show, sourceName, timeOf } from "./words.js";

const MAX_PICTURES = 2;
const LOG_POLL_MS = 3000;
const RETRY_MS = 2000;
const QUEUE_POLL_MS = 2000;
const COPY_POLL_MS = 3000;
const by = (id) => document.getElementById(id);
const id = decodeURIComponent(location.pathname.split("/").pop());
const path = `/jobs/${encodeURIComponent(id)}`;
let methodInfo = { title: "", scores: {}, captions: {}, centers: {} }; // the service's description of the method
let shown = null; // the attempt whose result is on the page
let files = [];
let last = null;

// Show an error of the service. The page says in one place, and only as long as it is true, that the service is away.
function complain(error) {
  if (error.status !== 0) show("problem", error.message);
}

function describe(job) {
  last = job;
  document.title = `${job.name || job.method} ${job.state} - mgclust`;
  const state = element("span", job.state, `state ${job.state}`);
  by("title").replaceChildren(`${job.name || methodInfo.title || job.method} `, state);
  const about = [`Submitted ${timeOf(job.created)}`, `by ${job.owner}`];
  if (job.attempt > 1) about.push(`attempt ${job.attempt}`);
  if (job.started) about.push(`${job.finished ? "took" : "running for"} ${duration((job.finished || Date.now() / 1000) - job.started)}`);
  by("about").textContent = about.join(" · ");
  if (job.request.parent) {
    const link = element("a", `job ${job.request.parent.slice(0, 8)}`);
    link.href = `/jobs/${encodeURIComponent(job.request.parent)}`;
    by("about").append(" · other centres of ", link);
  }
  by("cancel").hidden = !["PENDING", "RUNNING"].includes(job.state);
  by("retry").hidden = !["FAILED", "CANCELLED"].includes(job.state);
  by("delete").hidden = !by("cancel").hidden;
  describeProgress(job);
  by("failure").hidden = !job.error;
  by("error").textContent = job.error ? (job.state === "PENDING" ? `The last attempt ended: ${job.error}` : job.error) : "";
  by("fault").textContent = FAULTS[job.fault] || "";
  by("warned").hidden = !job.warnings?.length;
  by("warnings").replaceChildren(...(job.warnings || []).map((text) => element("li", text)));
  showScores(by("scores"), job.scores, methodInfo.scores);
  facts(by("request"), requestOf(job));
}

function describeProgress(job) {
  by("running").hidden = !["PENDING", "RUNNING"].includes(job.state);
  const progress = job.progress || {};
  by("stage").textContent = progress.stage || (job.state === "PENDING" ? "Waiting for its turn" : "Starting");
  const bar = by("fraction");
  const fraction = progress.fraction;
  if (typeof fraction !== "number") bar.removeAttribute("value");
  else bar.value = fraction;
  by("rate").textContent = paceOf(progress);
  const elapsed = typeof progress.elapsed === "number" ? duration(progress.elapsed) : "";
  by("details").textContent = [progress.details, elapsed].filter(Boolean).join(" · ");
}

function requestOf(job) {
  const told = [["job", job.id], ["method", job.method]];
  for (const [name, value] of Object.entries(job.request.parameters || {})) told.push([name, value?.upload || value?.path || value?.job ? sourceName(value) : String(value)]);
  for (const [name, value] of Object.entries(job.request.centers || {})) told.push([`centres: ${name}`, String(value)]);
  for (const [name, value] of Object.entries(job.request.options || {})) told.push([name, String(value)]);
  for (const [name, value] of Object.entries(job.request.resources || {})) told.push([name, String(value)]);
  for (const source of job.request.sources || []) told.push(["source", sourceName(source)]);
  if (job.request.mask) told.push(["mask", sourceName(job.request.mask)]);
  for (const name of ["confounds", "surfaces", "atlas"]) {
    for (const source of job.request[name] || []) told.push([name, sourceName(source)]);
  }
  if (job.request.results_to) told.push(["copy to", job.request.results_to]);
  told.push(["priority", String(job.priority)]);
  if (job.size !== null) told.push(["kept on disk", bytes(job.size)]);
  return told;
}

// Say how many jobs start before this one, as long as it waits. Nothing is said if the service does not know.
async function showPosition() {
  if (last?.state !== "PENDING" || document.hidden) return;
  try {
    const { before } = await askJson(`${path}/position`);
    if (last.state !== "PENDING" || before === null || last.progress?.stage) return;
    by("stage").textContent = before ? `Waiting for its turn: ${before.toLocaleString("en")} job${before === 1 ? " starts" : "s start"} before this job` : "Waiting for its turn: this job is the next";
  } catch {
    // the events of the job report that the service does not answer
  }
}

// Show the job until it has ended. While the service does not answer, try again.
async function follow() {
  show("problem", "");
  try {
    const first = await askJson(path), methods = await askJson("/methods");
    const { method, request } = first; // neither changes, and events do not contain the request
    methodInfo = methods[method] || methodInfo; // the method of an old job may not exist any more
    showNaming(by("naming"), first);
    for await (const job of events(id)) {
      describe({ ...job, request });
      showActions(by("actions"), last, methods);
      showPosition();
    }
    if (last?.state === "SUCCEEDED" && shown !== last.attempt) await showResult(last);
    if (by("log-part").open) await showLog();
  } catch (error) {
    if (error.status === 0) setTimeout(follow, RETRY_MS);
    else complain(error);
  }
}

async function showResult(job) {
  files = await askJson(`${path}/files`);
  shown = job.attempt;
  by("result").hidden = false;
  showCopy(job);
  by("files").replaceChildren(...files.map(fileEntry));
  by("report").hidden = !files.some((file) => file.name === "report.html");
  if (by("report").open) await showReport();
  if (Object.keys(methodInfo.centers).length) await showDecision(path, job, methodInfo, download);
  else await showPictures();
}

// Show the state of the copy of the result in a store, and update it until the copy has ended.
function showCopy({ result_copy: copy }) {
  by("copy").hidden = !copy;
  if (!copy) return;
  const said = { COPYING: "Copying the files to", COPIED: "The files were copied to", FAILED: "The files were not copied to" };
  by("copy-state").textContent = `${said[copy.state]} ${copy.to}${copy.error ? `: ${copy.error}` : ""}`;
  by("copy-again").hidden = copy.state !== "FAILED";
  const later = (error) => (error.status === 0 ? showCopy({ result_copy: copy }) : complain(error));
  if (copy.state === "COPYING") setTimeout(() => askJson(path).then(showCopy, later), COPY_POLL_MS);
}

function fileEntry(file) {
  const item = element("li");
  const button = element("button", "Download");
  button.type = "button";
  button.setAttribute("aria-label", `Download ${file.name}`);
  button.addEventListener("click", () => download(file.name.replaceAll("/", "_"), () => ask(addressOf(file)), file.size));
  item.append(element("span", `${file.name} (${bytes(file.size)})`), button);
  return item;
}

function addressOf(file) {
  return `${path}/files/${file.name.split("/").map(encodeURIComponent).join("/")}`;
}

// Show the pictures of the method that say most; the report has all of them.
async function showPictures() {
  const order = Object.keys(methodInfo.captions);
  const rank = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
  const named = files.map((file) => [file, file.name.replace(/\.png$/, "")]).filter(([file, name]) => file.name === `${name}.png` && !name.includes("/"));
  named.sort(([, a], [, b]) => rank(a) - rank(b));
  const figures = await Promise.all(named.slice(0, MAX_PICTURES).map(async ([file, name]) => {
    const image = element("img");
    image.src = URL.createObjectURL(await (await ask(addressOf(file))).blob());
    image.alt = name.replaceAll("_", " ");
    const made = element("figure");
    made.append(image, element("figcaption", methodInfo.captions[name] || ""));
    return made;
  }));
  by("pictures").replaceChildren(...figures);
}

// Fetch a file with the token, which a link would not send, then save it.
async function download(name, fetching, size = 0) {
  if (size > MAX_BLOB_BYTES) {
    by("download-state").textContent = `${name} is too large for a browser; fetch it with: mgclust result ${id} -o DIR`;
    return;
  }
  by("download-state").textContent = `Fetching ${name} ...`;
  try {
    const blob = await (await fetching()).blob();
    save(blob, name);
    by("download-state").textContent = `${name}: ${bytes(blob.size)}`;
  } catch (error) {
    by("download-state").textContent = error.message;
  }
}

// The report is fetched when it is opened.
async function showReport() {
  const frame = by("report-frame");
  if (frame.dataset.attempt === String(shown)) return;
  frame.dataset.attempt = shown;
  try {
    const page = await (await ask(`${path}/files/report.html`)).blob();
    if (frame.src.startsWith("blob:")) URL.revokeObjectURL(frame.src);
    frame.src = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  } catch (error) {
    frame.dataset.attempt = "";
    complain(error);
  }
}

by("report").addEventListener("toggle", () => by("report").open && showReport());
fitToReport(by("report-frame"));
by("all-files").addEventListener("click", () => {
  const total = files.reduce((sum, file) => sum + file.size, 0);
  download(`${last.method}-${id.slice(0, 8)}.zip`, () => ask(`${path}/files.zip`), total);
});

async function showLog() {
  const pre = by("log");
  const atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
  try {
    pre.textContent = (await (await ask(`${path}/log`)).text()) || "The log is empty so far.";
  } catch (error) {
    pre.textContent = error.message;
  }
  if (atEnd) pre.scrollTop = pre.scrollHeight;
}

for (const what of ["cancel", "retry"]) {
  by(what).addEventListener("click", async () => {
    try {
      describe(await post(`${path}/${what}`, {}));
      if (what === "retry") follow();
    } catch (error) {
      complain(error);
    }
  });
}
by("copy-again").addEventListener("click", () => post(`${path}/retry`, {}).then(showCopy, complain));
by("delete").addEventListener("click", () => by("confirm").showModal());
by("keep").addEventListener("click", () => by("confirm").close());
by("delete-now").addEventListener("click", async () => {
  by("confirm").close();
  try {
    await ask(path, { method: "DELETE" });
    location.href = "/";
  } catch (error) {
    complain(error);
  }
});
by("log-part").addEventListener("toggle", () => by("log-part").open && showLog());
setInterval(showPosition, QUEUE_POLL_MS);
setInterval(() => by("log-part").open && last?.state === "RUNNING" && showLog(), LOG_POLL_MS);
start(follow);

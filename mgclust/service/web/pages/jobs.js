// The list of jobs.

import { askJson, start, token } from "./session.js";
import { prepareForm } from "./submission.js";
import { duration, element, figure, paceOf, show, timeOf } from "./words.js";

const PAGE = 20;
const POLL_MS = 2000;

const state = document.getElementById("state");
const before = []; // the last job of each previous page
let looking = 0;
let listed = "";

function entry(job) {
  const item = element("li");
  const top = element("div", "", "top");
  const link = element("a", job.method);
  link.href = `/jobs/${job.id}`;
  top.append(link, element("span", job.state, `state ${job.state}`));
  const files = job.n_sources > 1 ? `${job.sources[0]} and ${job.n_sources - 1} more` : job.sources[0];
  const facts = [files, timeOf(job.created), job.id.slice(0, 8)].filter(Boolean);
  if (job.finished && job.started) facts.push(duration(job.finished - job.started));
  if (job.warnings?.length) facts.push(`${figure(job.warnings.length)} warning${job.warnings.length === 1 ? "" : "s"}`);
  if (job.scores?.n_clusters !== undefined) facts.push(`${figure(job.scores.n_clusters)} clusters`);
  if (job.parent) facts.push(`from ${job.parent.slice(0, 8)}`);
  item.append(top, element("p", facts.join(" · "), "quiet"));
  if (["PENDING", "RUNNING"].includes(job.state) && job.progress) {
    const bar = element("progress");
    bar.setAttribute("aria-label", job.progress.stage || "progress");
    if (typeof job.progress.fraction === "number") bar.value = job.progress.fraction;
    item.append(element("p", [job.progress.stage, paceOf(job.progress)].filter(Boolean).join(" · "), "quiet"), bar);
  }
  if (job.error) item.append(element("p", job.error, "problem"));
  return item;
}

async function look() {
  const turn = ++looking;
  const query = new URLSearchParams({ limit: PAGE + 1 });
  if (state.value) query.set("state", state.value);
  if (before.length) query.set("before", before[before.length - 1]);
  let found;
  try {
    found = await askJson(`/jobs?${query}`);
  } catch (error) {
    show("problem", error.message);
    return;
  }
  if (turn !== looking) return; // another page or state was requested meanwhile
  show("problem", "");
  document.getElementById("live").textContent = `Updated at ${new Date().toLocaleTimeString()}`;
  const news = JSON.stringify(found);
  if (news === listed) return; // an unchanged list keeps a selection of text
  listed = news;
  const list = document.getElementById("jobs");
  const focused = document.activeElement?.closest?.("#jobs a")?.getAttribute("href");
  list.replaceChildren(...found.slice(0, PAGE).map(entry));
  if (!found.length) list.append(element("li", state.value ? `No job is ${state.value}.` : "No jobs yet: open New job above."));
  if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  const older = document.getElementById("older");
  older.disabled = found.length <= PAGE;
  older.dataset.last = found.length > PAGE ? `${found[PAGE - 1].created},${found[PAGE - 1].id}` : "";
  document.getElementById("newer").disabled = !before.length;
}

state.addEventListener("change", () => {
  before.length = 0;
  look();
});
document.getElementById("older").addEventListener("click", (event) => {
  before.push(event.target.dataset.last);
  look();
});
document.getElementById("newer").addEventListener("click", () => {
  before.pop();
  look();
});

let begun = false;
start(() => {
  look();
  if (begun) return;
  begun = true;
  prepareForm();
  setInterval(() => token() && !document.hidden && look(), POLL_MS);
});

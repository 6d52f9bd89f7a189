// Actions on the page of a job that lead to other jobs: edit and run again, silhouettes, name and tags.

import { ask, newKey, post } from "./session.js";
import { element, show } from "./words.js";

const WITHOUT_LABELS = ["silhouette", "nearest-neighbors"];

// Show the actions of a job in an element of its page.
export function showActions(where, job, methods) {
  const edit = element("a", "Edit and run again", "button");
  edit.href = `/?from=${encodeURIComponent(job.id)}`;
  const found = [edit];
  const reads = methods[job.method]?.reads;
  if (job.state === "SUCCEEDED" && reads === "rows" && methods.silhouette && !WITHOUT_LABELS.includes(job.method) && metricOf(job) !== null) {
    const button = element("button", "Silhouettes");
    button.type = "button";
    button.title = "Submit a job that measures how well each row fits into its cluster.";
    button.addEventListener("click", () => silhouettes(button, job));
    found.push(button);
  }
  if (job.sweep) {
    const sweep = element("a", "Sweep", "button");
    sweep.href = `/?sweep=${encodeURIComponent(job.sweep)}`;
    found.push(sweep);
  }
  where.replaceChildren(...found);
}

// Return the distance of a clustering, undefined if it is the default; null if its data are similarities.
function metricOf(job) {
  const { metric, affinity } = job.request.parameters || {};
  return affinity?.startsWith("precomputed") ? null : metric || affinity;
}

async function silhouettes(button, job) {
  button.disabled = true;
  const { sources, mask, confounds, options, resources } = job.request;
  const request = {
    method: "silhouette", sources, mask, confounds, options, resources, key: newKey(),
    parameters: { labels: { job: job.id, name: `labels of job ${job.id.slice(0, 8)}` }, metric: metricOf(job) },
    ...(job.name ? { name: `Silhouettes of ${job.name}`.slice(0, 100) } : {}),
  };
  try {
    location.href = `/jobs/${(await post("/jobs", request)).id}`;
  } catch (error) {
    show("problem", error.message);
    button.disabled = false;
  }
}

// Show a form that changes the name and the tags of a job.
export function showNaming(form, job) {
  const [name, tags] = form.querySelectorAll("input");
  name.value = job.name || "";
  tags.value = job.tags.join(", ");
  form.onsubmit = async (event) => {
    event.preventDefault();
    const said = form.querySelector("[role=status]");
    const body = { name: name.value.trim(), tags: [...new Set(tags.value.split(/[\s,]+/).map((tag) => tag.replace(/^#/, "")).filter(Boolean))] };
    try {
      await ask(`/jobs/${encodeURIComponent(job.id)}`, {
        method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
      });
      said.textContent = "Saved.";
    } catch (error) {
      said.textContent = error.message;
    }
  };
}

// The page of a link to a result. The secret of the link is in the fragment of the address, which no server receives.

import { bytes, duration, element, figure, figures, show, timeOf } from "./words.js";

const MAX_BLOB_BYTES = 500e6; // a browser holds a file in memory before it saves it
const by = (id) => document.getElementById(id);
const secret = location.hash.slice(1);

async function ask(path) {
  const answer = await fetch(`/api/v1/shared${path}`, { headers: { Authorization: `Bearer ${secret}` } });
  if (answer.ok) return answer;
  if (answer.status === 401) throw new Error("This link has expired or was revoked, or its job was deleted; ask for another.");
  throw new Error((await answer.json()).error);
}

function where(file) {
  return `/files/${file.name.split("/").map(encodeURIComponent).join("/")}`;
}

async function download(path, name) {
  try {
    const blob = await (await ask(path)).blob();
    const link = element("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) {
    by("download-state").textContent = error.message;
  }
}

function fileEntry(file) {
  const item = element("li");
  const button = element("button", "Download");
  button.type = "button";
  button.setAttribute("aria-label", `Download ${file.name}`);
  button.disabled = file.size > MAX_BLOB_BYTES;
  button.addEventListener("click", () => download(where(file), file.name.replaceAll("/", "_")));
  item.append(element("span", `${file.name} (${bytes(file.size)})`), button);
  return item;
}

async function showJob() {
  if (!secret) throw new Error("This address is not complete: the part after # is missing.");
  const job = await (await ask("")).json();
  document.title = `${job.method}, shared - mgclust`;
  by("title").textContent = job.method.replaceAll("-", " ");
  const about = [`Submitted ${timeOf(job.created)}`];
  if (job.started && job.finished) about.push(`took ${duration(job.finished - job.started)}`);
  about.push(`this link works until ${timeOf(job.expires)}`);
  by("about").textContent = about.join(" · ");
  if (job.state !== "SUCCEEDED") show("problem", `The job is ${job.state} and has no result.`);
  by("warned").hidden = !job.warnings?.length;
  by("warnings").replaceChildren(...(job.warnings || []).map((text) => element("li", text)));
  const named = Object.entries(job.scores || {}).filter(([name]) => job.names[name] !== null);
  const scores = named.map(([name, value]) => [job.names[name] || name.replaceAll("_", " "), figure(value)]);
  figures(by("scores"), [...new Map(scores)]); // show a score that has two names once
  by("files").replaceChildren(...job.files.map(fileEntry));
  by("result").hidden = !job.files.length;
  by("all-files").disabled = job.files.reduce((sum, file) => sum + file.size, 0) > MAX_BLOB_BYTES;
  by("all-files").addEventListener("click", () => download("/files.zip", `${job.method}.zip`));
  if (job.files.some((file) => file.name === "report.html")) {
    const page = await (await ask("/files/report.html")).blob();
    by("report-frame").src = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    by("report").hidden = false;
  }
}

// The frame is as high as the report, so the page has one scroll bar. It has the origin of the page, so that its height
// can be measured, and runs no scripts.
by("report-frame").addEventListener("load", () => {
  const content = by("report-frame").contentDocument.documentElement;
  const fit = () => (by("report-frame").style.height = `${content.getBoundingClientRect().height + 2}px`);
  new ResizeObserver(fit).observe(content);
});
showJob().catch((error) => show("problem", error.message));

// The page of a link to a result. The secret of the link is in the fragment of the address, which no server receives.

import { MAX_BLOB_BYTES, fitToReport, save, showScores } from "./result.js";
import { bytes, duration, element, show, timeOf } from "./words.js";

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
    save(await (await ask(path)).blob(), name);
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
  showScores(by("scores"), job.scores, job.names);
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

fitToReport(by("report-frame"));
showJob().catch((error) => show("problem", error.message));

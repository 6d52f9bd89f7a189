// The page of administrators: users, tokens, the queue, the audit log and health.

import { askJson, post, start } from "./session.js";

const $ = (id) => document.getElementById(id);
const time = (seconds) => (seconds === null || seconds === undefined ? "-" : new Date(seconds * 1000).toLocaleString());
const number = (value) => Math.round(value).toLocaleString("en");

// Do something, and show its error or what was done.
async function act(what, done = "") {
  $("problem").hidden = true;
  $("done").textContent = "";
  try {
    await what();
    $("done").textContent = done;
  } catch (error) {
    $("problem").textContent = error.message;
    $("problem").hidden = false;
  }
}

function fill(body, rows, none) {
  $(body).replaceChildren(
    ...(rows.length ? rows : [[none]]).map((cells) => {
      const row = document.createElement("tr");
      for (const cell of cells) {
        const place = document.createElement("td");
        place.append(cell);
        if (cells.length === 1) place.colSpan = 20;
        row.append(place);
      }
      return row;
    }),
  );
}

function button(words, label, action) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: words, ariaLabel: label });
  made.addEventListener("click", action);
  return made;
}

function change(name, changes) {
  const body = JSON.stringify(changes);
  const how = { method: "PATCH", headers: { "Content-Type": "application/json" }, body };
  return act(async () => {
    await askJson(`/users/${encodeURIComponent(name)}`, how);
    await showUsers();
  }, `${name} is changed.`);
}

// A field for a limit of a user; empty: the limit of the service.
function limit(user, name, words) {
  const field = document.createElement("input");
  Object.assign(field, { type: "number", min: 0, value: user[name] ?? "", placeholder: "service's" });
  field.setAttribute("aria-label", `${words} of ${user.name}`);
  field.addEventListener("change", () => change(user.name, { [name]: field.value === "" ? null : Number(field.value) }));
  return field;
}

async function showUsers() {
  const users = await askJson("/users");
  const chosen = $("owner").value;
  fill("users", users.map((user) => [
    user.disabled ? `${user.name} (disabled)` : user.name, user.role, number(user.tokens), number(user.jobs),
    number(user.bytes), number(user.attempts), number(user.seconds), number(user.gpu_seconds),
    limit(user, "disk_limit", "Limit of bytes"), limit(user, "jobs_limit", "Limit of jobs"),
    button(user.disabled ? "Enable" : "Disable", `${user.disabled ? "Enable" : "Disable"} ${user.name}`,
      () => change(user.name, { disabled: !user.disabled })),
  ]), "There are no users.");
  $("owner").replaceChildren(...users.map((user) => new Option(user.name)));
  $("owner").value = users.some((user) => user.name === chosen) ? chosen : users[0].name;
}

async function showTokens() {
  const tokens = await askJson(`/tokens/${encodeURIComponent($("owner").value)}`);
  fill("tokens", tokens.map((token) => [
    token.id, token.scopes.join(", "), time(token.created), token.expires ? time(token.expires) : "never", time(token.used),
    token.revoked ? `revoked ${time(token.revoked)}` : button("Revoke", `Revoke ${token.id}`, () => act(async () => {
      await askJson(`/tokens/${token.id}`, { method: "DELETE" });
      await showTokens();
    }, `Token ${token.id} is revoked.`)),
  ]), "This user has no tokens.");
}

async function showQueue() {
  const jobs = await askJson("/admin/queue");
  fill("queue", jobs.map((job) => {
    const link = document.createElement("a");
    Object.assign(link, { href: `/jobs/${job.id}`, textContent: job.id.slice(0, 8) });
    return [job.position === null ? "user disabled" : number(job.position), link, job.owner, job.method,
      String(job.priority), time(job.queued)];
  }), "No job waits.");
}

async function showAudit() {
  const wanted = new URLSearchParams({ limit: 50 });
  if ($("of-user").value) wanted.set("user", $("of-user").value);
  if ($("of-action").value) wanted.set("action", $("of-action").value);
  const lines = await askJson(`/admin/audit?${wanted}`);
  fill("audit", lines.map((line) => [
    new Date(line.time).toLocaleString(), line.user ?? "-", line.action, String(line.status ?? "-"),
    String(line.id ?? line.name ?? line.path ?? "-"), line.source ?? "-",
  ]), "No line matches.");
}

async function showHealth() {
  const report = await askJson("/admin/health");
  const { state, age } = report.runner;
  const facts = {
    Service: `${report.status}, mgclust ${report.version}`,
    Runner: `${state}${age === null ? "" : `, last heartbeat ${age} s ago`}, ${report.slots} slots`,
    "Jobs run on": report.scheduler ? `${report.scheduler}; ${report.waiting_for_cluster} wait for it` : "this machine",
    Jobs: Object.entries(report.jobs).map(([name, count]) => `${number(count)} ${name}`).join(", "),
    "Longest wait": `${number(report.oldest_wait_seconds)} s`,
    Disk: `${number(report.disk_free_bytes)} of ${number(report.disk_bytes)} bytes are free`,
  };
  $("health").replaceChildren(...Object.entries(facts).flatMap(([name, text]) => {
    const [term, value] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    value.textContent = text;
    return [term, value];
  }));
}

$("new-user").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("name").value;
  act(async () => {
    await post("/users", { name, role: $("role").value });
    $("new-user").reset();
    await showUsers();
  }, `${name} is added.`);
});
$("owner").addEventListener("change", () => {
  $("secret").hidden = true;
  act(showTokens);
});
$("new-token").addEventListener("click", () => act(async () => {
  const made = await post("/tokens", { user: $("owner").value });
  $("token-text").value = made.token;
  $("secret").hidden = false;
  $("token-text").select();
  await showTokens();
}, "The token is made."));
$("find-tokens").addEventListener("submit", (event) => event.preventDefault());
$("find-lines").addEventListener("submit", (event) => {
  event.preventDefault();
  act(showAudit);
});

start(() => act(async () => {
  await showUsers(); // an error ends here if the token is not an administrator's
  await Promise.all([showTokens(), showQueue(), showAudit(), showHealth()]);
}));

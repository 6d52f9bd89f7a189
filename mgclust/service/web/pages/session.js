// The session: a cookie, which no script can read, and a proof, which this script keeps and sends with each request.

const KEY = "mgclust-proof";
const RETRY_MS = [500, 1000, 2000, 4000, 8000]; // pauses before a broken stream is opened again

export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

// Return the proof of the session, or null if nobody is signed in.
export function token() {
  return localStorage.getItem(KEY);
}

export function headers(more = {}) {
  return { "X-Mgclust-Proof": token() || "", ...more };
}

// Begin a session with a token or a one-time code, which is not kept.
export async function beginSession(secret) {
  const session = await askJson("/session", { method: "POST", headers: { Authorization: `Bearer ${secret}` } });
  localStorage.setItem(KEY, session.proof);
}

// Keep the proof of a session whose cookie the browser already has.
export async function keepProof(proof) {
  await ask("/session", { headers: { "X-Mgclust-Proof": proof } });
  localStorage.setItem(KEY, proof);
}

// End the session, if there is one.
export async function endSession() {
  if (!token()) return;
  try {
    await ask("/session", { method: "DELETE" });
  } catch (error) {
    if (error.status !== 401) throw error; // the session would go on
  }
  localStorage.removeItem(KEY);
}

// Return the answer of the service, or throw its error.
export async function ask(path, how = {}) {
  let answer;
  try {
    answer = await fetch(`/api/v1${path}`, { ...how, headers: headers(how.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    connected(false);
    throw new Refusal(0, "The service does not answer; is it running?");
  }
  connected(true);
  if (answer.ok || answer.status === 304) return answer;
  let sentence = `The service answered ${answer.status}.`;
  try {
    sentence = (await answer.json()).error;
  } catch {
    // not an error of the service itself
  }
  if (answer.status === 401) {
    if (!how.headers?.Authorization && !how.headers?.["X-Mgclust-Proof"]) localStorage.removeItem(KEY);
    enter(sentence);
  }
  throw new Refusal(answer.status, sentence);
}

// Say on any page whether the service answers: from the first request without an answer to the next with one.
function connected(answers) {
  let note = document.getElementById("offline");
  if (answers) note?.remove();
  if (answers || note) return;
  note = document.createElement("p");
  Object.assign(note, { id: "offline", className: "problem", textContent: "The service does not answer. This page tries again; running jobs are not lost." });
  note.setAttribute("role", "alert");
  document.getElementById("main").prepend(note);
}

// Make a key, so that a request that is sent twice creates only one job.
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4))).join("-");
}

export async function askJson(path, how) {
  return (await ask(path, how)).json();
}

export function post(path, body) {
  return askJson(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

// Receive events of a job until it ends; reopen a broken stream.
export async function* events(id) {
  let failures = 0;
  for (;;) {
    let last = null;
    try {
      const answer = await ask(`/jobs/${encodeURIComponent(id)}/events`);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines.filter((line) => line.startsWith("data: "))) {
          failures = 0;
          last = JSON.parse(line.slice(6));
          yield last;
        }
      }
    } catch (error) {
      if (error instanceof Refusal && error.status !== 0) throw error;
    }
    if (last && ["SUCCEEDED", "FAILED", "CANCELLED"].includes(last.state)) return;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]));
  }
}

// Call `begin` as soon as there is a valid token.
let begin = null;

export function start(whenSignedIn) {
  begin = whenSignedIn;
  const leave = document.getElementById("leave");
  leave.addEventListener("click", async () => {
    try {
      await endSession();
      location.href = "/";
    } catch {
      // the page says that the service does not answer
    }
  });
  if (token()) admit();
  else enter("");
}

function admit() {
  document.getElementById("token-entry")?.remove();
  document.getElementById("signed-in").hidden = false;
  document.getElementById("leave").hidden = false;
  showWho();
  begin();
}

// Show who is signed in.
async function showWho() {
  const { user, role } = await askJson("/session");
  let who = document.getElementById("who");
  if (!who) {
    who = document.createElement("span");
    Object.assign(who, { id: "who", className: "quiet" });
    document.getElementById("leave").before(who);
  }
  who.textContent = role === "admin" ? `${user} (` : user;
  if (role === "admin") {
    const link = document.createElement("a");
    Object.assign(link, { href: "/admin", textContent: "administrator" });
    who.append(link, ")");
  }
}

function enter(why) {
  if (!document.getElementById("signed-in")) return; // the page of a link to sign in
  document.getElementById("who")?.remove();
  document.getElementById("signed-in").hidden = true;
  document.getElementById("leave").hidden = true;
  document.getElementById("token-entry")?.remove();
  const form = document.createElement("form");
  form.id = "token-entry";
  form.className = "card token";
  const title = document.createElement("h1");
  title.textContent = "Sign in";
  const label = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { id: "token", type: "password", autocomplete: "off", required: true });
  label.append("Token", input);
  const note = document.createElement("p");
  note.className = "quiet";
  note.textContent = "Ask the administrator of the service for a token. The page does not keep it: it begins a session of 7 days.";
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.hidden = !why;
  problem.textContent = why;
  const button = document.createElement("button");
  button.className = "main";
  button.textContent = "Sign in";
  form.append(title, label, note, problem, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await beginSession(input.value.trim());
      admit();
      const heading = document.querySelector("#signed-in h1");
      heading.tabIndex = -1; // the keyboard focus continues from here
      heading.focus();
    } catch (error) {
      if (error.status !== 401) {
        problem.textContent = error.message;
        problem.hidden = false;
      }
    }
  });
  document.getElementById("main").append(form);
  input.focus();
  offerProvider(form);
}

// Add a link to the OpenID provider, if the service has one.
async function offerProvider(form) {
  try {
    if (!(await (await fetch("/sign-in/ways")).json()).openid) return;
  } catch {
    return; // the form works without it
  }
  const link = document.createElement("a");
  Object.assign(link, { id: "openid", href: "/sign-in/openid", textContent: "Sign in at your organisation" });
  const where = document.createElement("p");
  where.append(link);
  form.prepend(where);
}

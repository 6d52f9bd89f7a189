// The page of a link to sign in: a one-time code, or the proof of a session that the service has just begun.

import { askJson, beginSession, endSession, keepProof } from "./session.js";
import { show } from "./words.js";

const [kind, secret] = location.hash.slice(1).split("=");
history.replaceState(null, "", "/sign-in"); // the address with the secret stays in no history

async function enter() {
  if (kind === "code") {
    await offer({ Authorization: `Bearer ${secret}` }, async () => {
      await endSession();
      await beginSession(secret);
    });
  } else if (kind === "proof") {
    // Without TLS, another host may have set the cookie of this session.
    const { asks } = await (await fetch("/sign-in/ways")).json();
    if (asks === false) await arrive(() => keepProof(secret));
    else await offer({ "X-Mgclust-Proof": secret }, () => keepProof(secret)); // also if the answer is an error
  } else if (document.getElementById("problem").hidden) {
    throw new Error("This address is not complete; request another with 'mgclust sign-in'.");
  }
}

async function arrive(begin) {
  await begin();
  location.replace("/");
}

// Ask before the session begins: another site or a mail may have led here, with a code of another user.
async function offer(headers, begin) {
  const { user } = await askJson("/session", { headers });
  show("question", `Sign in as ${user}?`);
  show("note", "Sign in only if this is your name: this user reads all that you send afterwards.");
  const go = document.getElementById("go");
  go.hidden = false;
  go.focus();
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      await arrive(begin);
    } catch (error) {
      show("problem", error.message);
    }
  });
}

enter().catch((error) => show("problem", error.message));

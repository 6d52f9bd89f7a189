// The page of a link to sign in: a one-time code, or the proof of a session that the service has just begun.

import { askJson, beginSession, endSession, keepProof } from "./session.js";
import { show } from "./words.js";

const [kind, secret] = location.hash.slice(1).split("=");
history.replaceState(null, "", "/sign-in"); // the address with the secret stays in no history

async function enter() {
  if (kind === "code") {
    await offer();
  } else if (kind === "proof") {
    await keepProof(secret);
    location.replace("/");
  } else if (document.getElementById("problem").hidden) {
    throw new Error("This address is not complete; request another with 'mgclust sign-in'.");
  }
}

// Ask before the session begins: another site or a mail may have led here, with a code of another user.
async function offer() {
  const { user } = await askJson("/session", { headers: { Authorization: `Bearer ${secret}` } });
  show("question", `Sign in as ${user}?`);
  show("note", "Sign in only if this is your name: this user reads all that you send afterwards.");
  const go = document.getElementById("go");
  go.hidden = false;
  go.focus();
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      await endSession();
      await beginSession(secret);
      location.replace("/");
    } catch (error) {
      show("problem", error.message);
    }
  });
}

enter().catch((error) => show("problem", error.message));

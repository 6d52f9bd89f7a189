// The page of a link to sign in: a one-time code, or the proof of a session that the service has just begun.

import { beginSession, keepProof } from "./session.js";
import { show } from "./words.js";

const [kind, secret] = location.hash.slice(1).split("=");
history.replaceState(null, "", "/sign-in"); // the address with the secret stays in no history

async function enter() {
  if (kind === "code") await beginSession(secret);
  else if (kind === "proof") await keepProof(secret);
  else if (kind === "problem") throw new Error(decodeURIComponent(secret));
  else throw new Error("This address is not complete; request another with 'mgclust sign-in'.");
  location.replace("/");
}

enter().catch((error) => show("problem", error.message));

// Sharing the result of a job by links that expire: a button on the page of the job, and a dialog.

import { ask, askJson, post } from "./session.js";
import { element, timeOf } from "./words.js";

const DAYS = [1, 7, 30, 365];
const id = encodeURIComponent(decodeURIComponent(location.pathname.split("/").pop()));
const path = `/jobs/${id}/links`;

const button = element("button", "Share");
Object.assign(button, { id: "share", type: "button" });
const dialog = element("dialog", "", "card");
dialog.id = "sharing";
dialog.setAttribute("aria-labelledby", "sharing-title");
const title = element("h2", "Share this result");
title.id = "sharing-title";
const help = element("p", "Whoever opens the link sees the method, the scores, the warnings, the report and the files of this result, with its parameters and the names of the data files. The name, the tags, the user and the log of the job stay private.");
const label = element("label", "The link works for ", "inline");
const days = element("select");
days.id = "link-days";
days.append(...DAYS.map((n) => new Option(n === 1 ? "1 day" : `${n} days`, n, n === 7, n === 7)));
label.append(days);
const made = element("input");
Object.assign(made, { id: "link-address", readOnly: true, hidden: true });
made.setAttribute("aria-label", "Address of the new link");
const state = element("p", "", "quiet");
state.setAttribute("role", "status");
const list = element("ul", "", "files");
const row = element("div", "", "row");
const make = element("button", "Make a link", "main");
const close = element("button", "Close");
make.id = "make-link";
make.type = close.type = "button";
row.append(make, close);
dialog.append(title, help, label, made, state, list, row);

async function showLinks() {
  const links = await askJson(path);
  list.replaceChildren(...links.map((link) => {
    const item = element("li");
    const revoke = element("button", "Revoke");
    revoke.type = "button";
    revoke.setAttribute("aria-label", `Revoke the link of ${timeOf(link.created)}`);
    revoke.addEventListener("click", () => tried(async () => {
      await ask(`${path}/${link.id}`, { method: "DELETE" });
      made.hidden = true;
      state.textContent = "The link does not work any more.";
      await showLinks();
    }));
    item.append(element("span", `made ${timeOf(link.created)} by ${link.user}, until ${timeOf(link.expires)}`), revoke);
    return item;
  }));
}

async function tried(act) {
  try {
    await act();
  } catch (error) {
    state.textContent = error.message;
  }
}

button.addEventListener("click", () => {
  state.textContent = "";
  made.hidden = true;
  dialog.showModal();
  make.focus();
  tried(showLinks);
});
close.addEventListener("click", () => dialog.close());
make.addEventListener("click", () => tried(async () => {
  const link = await post(path, { days: Number(days.value) });
  made.value = `${location.origin}${link.path}`;
  made.hidden = false;
  made.select();
  try {
    await navigator.clipboard.writeText(made.value);
    state.textContent = "The link is copied. It is shown only now.";
  } catch {
    state.textContent = "Copy the link now: it is shown only once.";
  }
  await showLinks();
}));
document.getElementById("cancel").after(button);
document.getElementById("main").append(dialog);

// The console: who is signed in, which view the address names, and what was just done.

import { $, el, say } from "/console/dom.js";
import { may, operator, resume, signOut, whenLost } from "/console/api.js";
import { NOT_DONE, leaveForms, loseForms, signInForm } from "/console/forms.js";
import { endTold, place, redraw, showBy, whatIsTold } from "/console/place.js";
import { accountsView } from "/console/accounts.js";
import { accountView } from "/console/account.js";
import { callsView } from "/console/calls.js";
import { modelsView, providersView } from "/console/catalogue.js";
import { logView, operatorsView } from "/console/log.js";
import { statusView } from "/console/status.js";

const VIEWS = [["accounts", "Accounts", accountsView], ["calls", "Calls", callsView], ["models", "Models", modelsView], ["providers", "Providers", providersView],
  ["log", "Log", logView], ["operators", "Operators", operatorsView], ["status", "Status", statusView]];
let turn = 0;

function navigation(view) {
  const entries = VIEWS.filter(([id]) => id !== "operators" || may("manage"));
  $("nav").replaceChildren(...entries.map(([id, title]) => el("a", { href: `#/${id}`, text: title, "aria-current": id === view ? "page" : undefined })));
  $("operator").textContent = `${operator().name} · ${operator().role}`;
  $("nav").hidden = $("who").hidden = false;
}

function draw(title, nodes, focus) {
  const heading = el("h1", { tabindex: -1, text: title }), notice = el("p", { class: "notice", role: "status", id: "notice", tabindex: -1 });
  document.title = `${title} · Tollgate console`;
  $("main").replaceChildren(heading, notice, ...nodes);
  const told = whatIsTold();
  if (told !== null) { say(notice, told); notice.focus(); } else ((focus && document.querySelector(focus)) || heading).focus();
}

async function show() {
  const mine = turn += 1, { view, name, query } = place();
  if (operator() === null) { signInView(); return; }
  navigation(view);
  delete document.body.dataset.view;
  const found = VIEWS.find(([id]) => id === view);
  const make = view === "accounts" && name ? accountView : found?.[2];
  try {
    if (!make) throw new Error("There is no such page.");
    const { title, nodes, focus, load } = await make({ name, query });
    if (mine !== turn) return;
    draw(title, nodes, focus);
    endTold();
    // Parts that are read on their own say themselves what fails.
    await load?.();
    if (mine !== turn) return;
    // What stands above it has grown meanwhile.
    const asked = focus && document.querySelector(focus);
    if (asked && asked === document.activeElement) asked.scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (mine !== turn || operator() === null) return;
    console.info(error);
    draw(found?.[1] ?? "Console", [el("p", { class: "notice bad", role: "alert", text: error.message }), el("div", { class: "acts" }, el("button", { type: "button", text: "Try again", on: { click: show } }))]);
  }
  document.body.dataset.view = view;
}

function signInView(text) {
  $("nav").hidden = $("who").hidden = true;
  const { form } = signInForm(redraw);
  draw("Sign in", [form]);
  if (text) say($("notice"), [whatIsTold(), text].filter(Boolean).join(" "), true);
  form.querySelector("input").focus();
  document.body.dataset.view = "sign-in";
}

showBy(show);
whenLost(reads => {
  turn += 1;
  const isInDoubt = loseForms();
  signInView(reads || isInDoubt ? "The session has ended. Sign in again." : NOT_DONE);
});
$("leave").addEventListener("click", async () => {
  try {
    await signOut();
    turn += 1;
    signInView();
  } catch (error) {
    if (operator() !== null) say($("notice"), `You may still be signed in: ${error.message}`, true);
  }
});
$("skip").addEventListener("click", event => { event.preventDefault(); $("main").focus(); });
addEventListener("hashchange", () => { leaveForms(); show(); });
try { await resume(); await show(); } catch (error) { signInView(error.message); }

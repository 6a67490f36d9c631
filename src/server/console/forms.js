// Forms in dialogs: each error stands at its field, and Escape leaves. While a form is being sent it can be neither sent again nor left: its
// answer may be a text that is told once, and another form would do it twice. One that was sent, and may have been done or not, can be sent
// again, and is left by its own button alone: another form would have another reference.

import { $, copier, el, say } from "/console/dom.js";
import { operator, signIn } from "/console/api.js";
import { done, redraw, tellToo } from "/console/place.js";

let numbers = 0;

function control(field, id) {
  const described = [field.hint && `${id}-hint`, `${id}-error`].filter(Boolean).join(" ");
  const set = { id, name: field.name, required: field.required, autocomplete: "off", "aria-describedby": described };
  if (field.type === "select") return el("select", set, ...field.options.map(([value, text]) => el("option", { value, text, selected: value === field.value })));
  if (field.type === "area") {
    const area = el("textarea", { ...set, rows: field.rows ?? 3, spellcheck: "false" });
    area.value = field.value ?? "";
    return area;
  }
  return el("input", { ...set, type: field.type ?? "text", value: field.value, inputmode: field.inputmode, maxlength: field.length, spellcheck: "false", autocapitalize: "none", checked: field.type === "checkbox" && field.value });
}

// A field with its label, its hint, and the place of its error.
export function fieldOf(field) {
  const id = `f${numbers += 1}`, input = control(field, id);
  const error = el("p", { class: "error", id: `${id}-error`, "aria-live": "polite" });
  const hint = field.hint ? el("p", { class: "hint", id: `${id}-hint` }, ...[field.hint].flat()) : null;
  const box = field.type === "checkbox" ? el("div", {}, el("label", { class: "check" }, input, field.label), hint, error)
    : el("div", { class: "field" }, el("label", { for: id, text: field.label }), input, hint, error);
  const fail = text => {
    error.textContent = text ?? "";
    if (text) input.setAttribute("aria-invalid", "true"); else input.removeAttribute("aria-invalid");
  };
  const value = () => (field.type === "checkbox" ? input.checked : field.type === "password" || field.type === "area" ? input.value : input.value.trim());
  const check = () => {
    const problem = field.required && value() === "" ? `${field.label} is missing.` : field.check?.(value());
    fail(problem);
    return !problem;
  };
  return { name: field.name, box, input, value, check, fail };
}

const DECIMAL = /^-?\d{1,9}(\.\d{1,12})?$/;
export const amount = { inputmode: "decimal", check: text => (text === "" || DECIMAL.test(text) ? null : "An amount is digits, such as 12.50, with at most 12 behind the point.") };

// Fields and a button; `send(values)` does it, and its error goes to the field that it is about.
export function formOf({ fields, act, danger, send, also = [] }) {
  const made = fields.map(fieldOf), problem = el("p", { class: "notice bad", role: "alert" });
  const button = el("button", { type: "submit", class: danger ? "danger" : "main", text: act });
  const state = el("span", { class: "dim small", role: "status" });
  const form = el("form", { novalidate: true }, ...made.map(field => field.box), problem, el("div", { class: "acts" }, button, ...also, state));
  let busy = false;
  const setBusy = now => {
    busy = now;
    // Not `disabled`: the button would lose the focus.
    for (const name of ["aria-disabled", "aria-busy"]) if (now) button.setAttribute(name, "true"); else button.removeAttribute(name);
    for (const other of also) other.disabled = now;
    // What is being sent is what stands there: another reference beneath it would count a second time.
    for (const { input } of made) if (input.matches("select, [type=checkbox]")) input.disabled = now; else input.readOnly = now || input.hasAttribute("data-kept");
    state.textContent = now ? "Sending…" : "";
  };
  form.addEventListener("submit", async event => {
    event.preventDefault();
    if (busy) return;
    problem.replaceChildren();
    const wrong = made.filter(field => !field.check());
    if (wrong.length) { wrong[0].input.focus(); return; }
    setBusy(true);
    try {
      await send(Object.fromEntries(made.map(field => [field.name, field.value()])));
    } catch (error) {
      const about = made.find(field => error.field === field.name || new RegExp(`^(the )?${field.name}\\b`, "i").test(error.message));
      if (about) { about.fail(error.message); about.input.focus(); } else problem.textContent = error.message;
    } finally {
      setBusy(false);
    }
  });
  return { form, isBusy: () => busy };
}

// Asks for an operator's token; `then` follows one that is good.
export const signInForm = then => formOf({
  fields: [{ name: "token", label: "Operator's token", type: "password", required: true, hint: [el("code", { text: "tollgate operator create NAME --role ROLE" }), " has shown it. The page does not keep it; the session ends after 12 hours."] }],
  act: "Sign in",
  send: async ({ token }) => { await signIn(token.trim()); await then(); },
});

// Dialogs that are open. One that is held ends by `close` alone.
const open = new Set();
const isAnyHeld = () => [...open].some(one => one.isHeld());

// Closes what is not held: the page goes to another view, or the session is over.
export function leaveForms() {
  for (const one of open) if (!one.isHeld()) one.close(null);
}

// The session is over. A form that may have been done or not stays, and asks for a token itself; answers whether there is one.
export function loseForms() {
  leaveForms();
  return [...open].map(one => one.onSessionEnd()).includes(true);
}

// A browser lets `cancel` be prevented once: of a second Escape the key itself has to be taken, wherever the focus is.
addEventListener("keydown", event => { if (event.key === "Escape" && isAnyHeld()) event.preventDefault(); });
addEventListener("beforeunload", event => {
  if (!isAnyHeld()) return;
  event.preventDefault();
  event.returnValue = ""; // For browsers that do not go by the line above.
});

// Where the focus goes when what opened a dialog is no longer there.
const startOfPage = () => document.querySelector("body[data-view=sign-in] main input") ?? document.querySelector("main h1");

// A dialog that is gone once it is closed; resolves to what `close` was given, or null. `build` answers its content, whether it is held now, and
// what it does when the session is over, which answers whether it stays.
function dialogOf(title, build) {
  return new Promise(resolve => {
    const id = `d${numbers += 1}`, before = document.activeElement;
    let result = null, isClosed = false;
    const dialog = el("dialog", { "aria-labelledby": id });
    const close = value => {
      if (isClosed) return;
      [result, isClosed] = [value, true];
      dialog.close();
    };
    const { nodes, isHeld, onSessionEnd = () => false } = build(close), one = { isHeld, onSessionEnd, close };
    dialog.append(el("h2", { id, text: title, tabindex: -1 }), ...nodes);
    dialog.addEventListener("cancel", event => { if (isHeld()) event.preventDefault(); });
    dialog.addEventListener("close", () => {
      // A telephone's second step back closes it all the same.
      if (!isClosed && isHeld()) { dialog.showModal(); return; }
      open.delete(one);
      dialog.remove();
      (before?.isConnected ? before : startOfPage())?.focus();
      resolve(result);
    });
    open.add(one);
    document.body.append(dialog);
    dialog.showModal();
    (dialog.querySelector("input, select, textarea") ?? dialog.querySelector("h2")).focus();
  });
}

export async function formDialog({ title, about, fields, act, danger, send }) {
  // The values of a sending that may have been done or not. No later refusal tells which.
  let doubted = null;
  const result = await dialogOf(title, close => {
    const cancel = el("button", { type: "button", text: "Cancel", on: { click: () => close(null) } }), signInPlace = el("div");
    const askForToken = () => {
      if (!signInPlace.hasChildNodes()) {
        const asking = signInForm(async () => {
          signInPlace.replaceChildren();
          form.querySelector("button[type=submit]").focus();
          await redraw();
        });
        signInPlace.replaceChildren(el("p", { class: "notice bad", role: "alert", text: sessionEnded(doubted) }), asking.form);
      }
      signInPlace.querySelector("input").focus();
    };
    const sendAndClose = async values => {
      try {
        close(await send(values) ?? true);
      } catch (error) {
        if (error.isInDoubt) {
          doubted = values;
          // By another one it would count a second time.
          form.querySelector("[name=reference]")?.setAttribute("data-kept", "");
        }
        if (operator() !== null) throw error;
        if (doubted) askForToken();
        else if (error.status === 401) {
          // The page behind it asks for a token already; it may have found that by a read, which says nothing of this.
          say($("notice"), NOT_DONE, true);
          close(null);
        } else throw error;
      }
    };
    const { form, isBusy } = formOf({ fields, act, danger, send: sendAndClose, also: [cancel] });
    const onSessionEnd = () => {
      if (doubted) askForToken();
      return doubted !== null;
    };
    return { nodes: [...(about ? [el("p", { text: about })] : []), signInPlace, form], isHeld: () => isBusy() || doubted !== null, onSessionEnd };
  });
  // The view may be older than what was sent: it is read again, so that what is looked for there can be found.
  if (result === null && doubted) await done(cancelled(title, doubted));
  // What has a reference counts once however often it was sent.
  if (result !== null && doubted && !doubted.reference) tellToo("An earlier sending of the form may have been done as well: look into the log.");
  return result;
}

// What is said of something that was sent when the session was over.
export const NOT_DONE = "The session has ended, and what was sent was not done. Sign in again.";

function sessionEnded({ reference }) {
  const next = reference ? `send this form again: its reference ${reference} counts once` : "look into the log before this form is sent again";
  return `The session has ended, and whether what was sent was done is not known. Sign in again, then ${next}.`;
}

function cancelled(title, { reference }) {
  const next = reference ? `Look for the reference ${reference} in the account's credit before anything is posted again.` : "Look into the log before it is done again.";
  return `“${title}”: whether it was done is not known. ${next}`;
}

// Asks before something that cannot be taken back.
export const confirmDialog = (title, about, act, send) => formDialog({ title, about, fields: [], act, danger: true, send });

// Shows a text that is told once: it is held until its button says that it is kept.
export function secretDialog(title, text, name) {
  return dialogOf(title, close => ({ isHeld: () => true, nodes: [
    el("p", { text: `This is the only time that ${name} is shown: the gateway keeps no more than its digest.` }),
    el("pre", { class: "secret", tabindex: 0, role: "region", "aria-label": name, data: { secret: "yes" }, text }),
    el("div", { class: "acts" }, copier(() => text, name), el("button", { type: "button", class: "main", text: "I have kept it", on: { click: () => close(true) } })),
  ] }));
}

// Credit entries of an account, and posting one: each form has a reference of its own, so that whatever is sent twice counts once.

import { el, moment, pico, table } from "/console/dom.js";
import { account, ask, reference } from "/console/api.js";
import { amount, formDialog } from "/console/forms.js";
import { done, link } from "/console/place.js";

const ADDED = [["top_up", "Top-up: paid for"], ["bonus", "Bonus: given"]];
const CORRECTED = [["correction", "Correction: puts a mistake right"], ["refund", "Refund: paid back"]];

export function creditSection(isOlder, place) {
  return el("section", { data: { part: "credit" } }, el("h2", { tabindex: -1, text: isOlder ? "Older credit" : "Newest credit" }), place);
}

export function creditTable(facts, page, isOlder) {
  const columns = [
    { title: "Time (UTC)", time: true, of: row => moment(row.time) },
    { title: "Kind", word: true, of: row => row.kind.replace("_", "-") },
    { title: "Amount", number: true, of: row => row.amount },
    { title: "Reference", wide: true, of: row => row.reference },
    { title: "Note", wide: true, of: row => row.note },
    { title: "Balance after", number: true, wide: true, of: row => row.balance },
  ];
  return [table("Credit, newest first", columns, page.data, "No credit was ever added."),
    el("div", { class: "acts" }, isOlder ? el("a", { class: "button", href: link("accounts", facts.name), text: "Newest credit" }) : null,
      page.next ? el("a", { class: "button", href: link("accounts", facts.name, { credits: page.next }), text: "Older credit" }) : null)];
}

export async function post(facts, first) {
  const corrects = first === "correction";
  const posted = await formDialog({
    title: corrects ? `Correct the credit of ${facts.name}` : `Add credit to ${facts.name}`,
    about: corrects ? `The balance is ${facts.balance}, of which ${facts.held} is held by running calls. A negative amount takes credit away.` : null,
    act: corrects ? "Post it" : "Add it",
    fields: [
      { name: "amount", label: "Amount", required: true, ...amount, check: text => amount.check(text) ?? amountProblem(text, corrects) },
      { name: "kind", label: "Kind", type: "select", options: facts.status === "closed" || corrects ? CORRECTED : ADDED, value: first },
      { name: "reference", label: "Reference", required: true, value: reference(), hint: "What the entry is known by, such as a payment's number: with the same one it counts once." },
      { name: "note", label: "Note", type: "area", rows: 2, hint: "Who paid, why it is corrected: it stands in the statement and in the log." },
      ...(corrects ? [{ name: "allow_negative", label: "Take more than what is available", type: "checkbox" }] : []),
    ],
    send: values => {
      const body = { amount: values.amount, kind: values.kind, reference: values.reference };
      if (values.note.trim() !== "") body.note = values.note.trim();
      if (values.allow_negative) body.allow_negative = true;
      return ask("POST", `${account(facts.name)}/credits`, body);
    },
  });
  if (posted) await done(posted.replayed ? `This reference had counted before: nothing was added to ${facts.name}. The balance is ${posted.balance}.` : `Posted to ${facts.name}. The balance is ${posted.balance}.`);
}

function amountProblem(text, corrects) {
  const value = pico(text);
  if (value === 0n) return "The amount is 0.";
  return value !== null && value < 0n && !corrects ? "The amount must be above 0: use a correction to take credit away." : null;
}

// One account: its credit, what it spends, its statement, keys and calls, and what may be done with it.

import { byDay } from "/console/chart.js";
import { behind, count, counted, days, decimal, el, idText, moment, pico, sum, table, tile, today } from "/console/dom.js";
import { account, ask, get, may } from "/console/api.js";
import { confirmDialog, fieldOf } from "/console/forms.js";
import { done, link } from "/console/place.js";
import { editTerms, status } from "/console/accounts.js";
import { callColumns } from "/console/calls.js";
import { creditSection, post } from "/console/credit.js";
import { keysSection } from "/console/keys.js";

const CALLS = 10, NEWEST = 5;

export async function accountView({ name, query }) {
  const range = { from: query.from || today(29), to: query.to || today() };
  const [facts, statement, credits, keys, calls] = await Promise.all([get(account(name)), get(`${account(name)}/statement`, range),
    get(`${account(name)}/credits`, { limit: query.credits ? 20 : NEWEST, before: query.credits }), get(`${account(name)}/keys`), get("/v1/generations", { account: name, limit: CALLS })]);
  const asked = query.from || query.to ? "statement" : query.credits ? "credit" : null;
  return {
    title: name,
    focus: asked && `[data-part=${asked}] h2`,
    nodes: [el("p", {}, status(facts), ` tier ${facts.tier} · made ${moment(facts.created_at)} UTC`), tiles(facts), acts(facts), spend(facts, statement, range),
      creditSection(facts, credits, Boolean(query.credits)), statementSection(facts, statement, range), keysSection(facts, keys), callsSection(name, calls)],
  };
}

function tiles(facts) {
  const metadata = Object.entries(facts.metadata ?? {}), unit = facts.currency;
  return el("section", {}, el("h2", { class: "vh", text: "Credit now" }), el("div", { class: "tiles" },
    tile("Balance", facts.balance, { unit }, facts.low_balance === null || facts.low_balance === undefined ? "no warning of low credit" : `low below ${facts.low_balance}`),
    tile("Held by running calls", facts.held, { unit }, `${counted(facts.open_calls, "call")} now; ${facts.available} available`),
    tile("Used this month", facts.monthly_used, { unit }, `of ${facts.monthly_quota}${facts.own_quota ? "" : ", the tier's quota"}`)),
    metadata.length ? el("dl", { class: "facts" }, ...metadata.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })])) : null);
}

function acts(facts) {
  const button = (text, act, look) => el("button", { type: "button", class: look, text, on: { click: act } });
  const to = (word, about, wanted, look) => button(word, async () => {
    const sure = await confirmDialog(`${word} ${facts.name}?`, about, word, () => ask("PATCH", account(facts.name), { status: wanted }));
    if (sure) await done(`${facts.name} is ${wanted}.`);
  }, look);
  const found = [];
  if (may("credit")) {
    if (facts.status !== "closed") found.push(button("Add credit", () => post(facts, "top_up"), "main"));
    found.push(button("Correct credit", () => post(facts, "correction")));
  }
  if (may("suspend") && facts.status === "active") found.push(to("Suspend", "Its calls are refused with 403 until it is resumed. Keys and credit stay.", "suspended", "danger"));
  if (may("suspend") && facts.status === "suspended") found.push(to("Resume", "Its calls are served again.", "active"));
  if (may("manage")) {
    found.push(button("Change terms", () => editTerms(facts)));
    if (facts.status !== "closed") found.push(to("Close", "It never calls again, and gets no keys and no credit but corrections and refunds. This cannot be undone. Its books stay.", "closed", "danger"));
  }
  return el("div", { class: "acts" }, ...found);
}

function rangeForm(name, range) {
  const from = fieldOf({ name: "from", label: "First day (UTC)", type: "date", value: range.from, required: true });
  const to = fieldOf({ name: "to", label: "Last day (UTC)", type: "date", value: range.to, required: true });
  return el("form", { class: "row", on: { submit: event => {
    event.preventDefault();
    to.fail(from.value() > to.value() ? "The last day is before the first." : null);
    if (from.check() && to.check() && from.value() <= to.value()) location.hash = link("accounts", name, { from: from.value(), to: to.value() });
  } } }, from.box, to.box, el("button", { type: "submit", text: "Show these days" }));
}

function spend(facts, statement, range) {
  const rows = statement.debits.map(({ day, model, cost }) => ({ day, name: model, cost }));
  return el("section", {}, el("h2", { text: "Spend by day and model" }), byDay("Spend", days(range.from, range.to), rows, facts.currency));
}

function statementSection(facts, statement, range) {
  const entries = [
    { title: "Time (UTC)", time: true, of: row => moment(row.time) }, { title: "Kind", word: true, of: row => row.kind.replace("_", "-") }, { title: "Amount", number: true, of: row => row.amount },
    { title: "Reference", wide: true, of: row => row.reference }, { title: "Note", wide: true, of: row => row.note }, { title: "Balance", number: true, wide: true, of: row => row.balance },
  ];
  const debits = [
    { title: "Day", time: true, of: row => row.day }, { title: "Model", name: true, of: row => idText(row.model) }, { title: "Calls", number: true, wide: true, of: row => count(row.requests) },
    { title: "Tokens", number: true, wide: true, of: row => count(row.tokens ?? row.prompt_tokens + row.completion_tokens) }, { title: "Cost", number: true, of: row => row.cost },
  ];
  const debited = pico(sum(statement.debits.map(row => row.cost)));
  const lines = [["Opening balance", statement.opening_balance], ["Credit entries", sum(statement.entries.map(row => row.amount))], ["Debits", decimal(-debited)], ["Closing balance", statement.closing_balance]];
  const csv = `${account(facts.name)}/statement?${new URLSearchParams({ ...range, format: "csv" })}`;
  return el("section", { data: { part: "statement", ...range } }, el("h2", { tabindex: -1, text: "Statement" }), el("p", { text: `${range.from} to ${range.to}, days of UTC; amounts in ${facts.currency}.` }), rangeForm(facts.name, range), sums(lines),
    el("div", { class: "acts" }, el("a", { class: "button", href: csv, download: `statement-${facts.name}-${range.from}-${range.to}.csv`, text: "Download it as CSV" }), el("button", { type: "button", text: "Print it", on: { click: () => print() } })),
    el("h3", { text: "Credit entries" }), table("Credit entries of the statement", entries, statement.entries, "None in these days."),
    el("h3", { text: "Debits by day and model" }), table("Debits of the statement", debits, statement.debits, "None in these days."),
    el("p", { class: "printed small dim", text: `As of ${moment(Date.now())} UTC` }));
}

// Lines that add up to the last one, their points below each other.
function sums(lines) {
  const most = Math.max(...lines.map(([, value]) => behind(value) ?? 0));
  const pad = own => (own < most ? (own === 0 ? "." : "") + "0".repeat(most - own) : undefined);
  return el("dl", { class: "sum" }, ...lines.flatMap(([title, value]) => [el("dt", { text: title }), el("dd", { text: value, "data-pad": pad(behind(value) ?? 0) })]));
}

function callsSection(name, calls) {
  return el("section", {}, el("h2", { text: "Newest calls" }), table("Newest calls", callColumns(), calls.data, "No call yet, or no receipts are kept."),
    el("p", {}, el("a", { href: link("calls", null, { account: name }), text: `All calls of ${name}` })));
}

// One account: its credit, what it spends, its statement, keys and calls, and what may be done with it.

import { byDay } from "/console/chart.js";
import { behind, count, counted, days, decimal, el, idText, moment, pico, say, sum, table, tile, today } from "/console/dom.js";
import { account, ask, get, may, report, save } from "/console/api.js";
import { confirmDialog, fieldOf } from "/console/forms.js";
import { inOrder, partOf } from "/console/parts.js";
import { done, link } from "/console/place.js";
import { editTerms, status } from "/console/accounts.js";
import { callColumns } from "/console/calls.js";
import { creditSection, creditTable, post } from "/console/credit.js";
import { keysSection, keysTable } from "/console/keys.js";

const CALLS = 10, NEWEST = 5;

export async function accountView({ name, query }) {
  const range = { from: query.from || today(29), to: query.to || today() };
  const facts = await get(account(name)), isOlder = Boolean(query.credits), inTurn = inOrder();
  const keys = partOf(() => get(`${account(name)}/keys`), { Keys: page => keysTable(facts, page) });
  const credits = partOf(() => report(`${account(name)}/credits`, { limit: isOlder ? 20 : NEWEST, before: query.credits }), { Credit: page => creditTable(facts, page, isOlder) }, inTurn);
  const statement = partOf(() => report(`${account(name)}/statement`, range), { Spend: read => spend(facts, read, range), Statement: read => statementOf(facts, read, range) }, inTurn);
  const calls = partOf(() => report("/v1/generations", { account: name, limit: CALLS }), { Calls: page => [table("Newest calls", callColumns(), page.data, "No call yet, or no receipts are kept.")] }, inTurn);
  const asked = query.from || query.to ? "statement" : query.credits ? "credit" : null;
  return {
    title: name,
    focus: asked && `[data-part=${asked}] h2`,
    nodes: [el("p", {}, status(facts), ` tier ${facts.tier} · made ${moment(facts.created_at)} UTC`), tiles(facts), acts(facts), el("section", {}, el("h2", { tabindex: -1, text: "Spend by day and model" }), statement.places.Spend),
      creditSection(isOlder, credits.places.Credit), statementSection(facts, range, statement.places.Statement), keysSection(facts, keys.places.Keys), callsSection(name, calls.places.Calls)],
    load: () => Promise.all([keys, credits, statement, calls].map(part => part.load())),
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
  return [byDay("Spend", days(range.from, range.to), rows, facts.currency)];
}

// Other days can be asked for whatever comes of these.
function statementSection(facts, range, place) {
  return el("section", { data: { part: "statement", ...range } }, el("h2", { tabindex: -1, text: "Statement" }), el("p", { text: `${range.from} to ${range.to}, days of UTC; amounts in ${facts.currency}.` }), rangeForm(facts.name, range), place);
}

function statementOf(facts, statement, range) {
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
  const download = async () => {
    try { await save(csv, `statement-${facts.name}-${range.from}-${range.to}.csv`); } catch (error) { say(document.querySelector("#notice"), error.message, true); }
  };
  return [sums(lines),
    el("div", { class: "acts" }, el("button", { type: "button", text: "Download it as CSV", on: { click: download } }), el("button", { type: "button", text: "Print it", on: { click: () => print() } })),
    el("h3", { text: "Credit entries" }), table("Credit entries of the statement", entries, statement.entries, "None in these days."),
    el("h3", { text: "Debits by day and model" }), table("Debits of the statement", debits, statement.debits, "None in these days."),
    el("p", { class: "printed small dim", text: `As of ${moment(Date.now())} UTC` })];
}

// Lines that add up to the last one, their points below each other.
function sums(lines) {
  const most = Math.max(...lines.map(([, value]) => behind(value) ?? 0));
  const pad = own => (own < most ? (own === 0 ? "." : "") + "0".repeat(most - own) : undefined);
  return el("dl", { class: "sum" }, ...lines.flatMap(([title, value]) => [el("dt", { text: title }), el("dd", { text: value, "data-pad": pad(behind(value) ?? 0) })]));
}

function callsSection(name, place) {
  return el("section", { data: { part: "calls" } }, el("h2", { tabindex: -1, text: "Newest calls" }), place,
    el("p", {}, el("a", { href: link("calls", null, { account: name }), text: `All calls of ${name}` })));
}

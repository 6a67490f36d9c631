// The log of what operators did, and the operators themselves.

import { el, moment, table } from "/console/dom.js";
import { ask, get, operator } from "/console/api.js";
import { confirmDialog, fieldOf, formDialog, secretDialog } from "/console/forms.js";
import { done, goTo, link } from "/console/place.js";

const LIMIT = 50;

const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
const one = value => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

// What stands differently after it, a line for each name; what is within something has both names.
function difference(before, after, within = "") {
  if (!isObject(before) && !isObject(after)) return one(before) === one(after) ? [] : [`${within ? `${within}: ` : ""}${one(before)} → ${one(after)}`];
  const names = [...new Set([...Object.keys(isObject(before) ? before : {}), ...Object.keys(isObject(after) ? after : {})])];
  return names.flatMap(name => difference(before?.[name], after?.[name], within ? `${within}.${name}` : name)).map(line => line.replace(": – → ", ": "));
}

// One that was refused has nothing after it, and changed nothing. A rotation makes a key, and changes when the old one ends.
function changed({ action, before, after }) {
  if (after === null || after === undefined) return [];
  if (action !== "key.rotate" || !isObject(after.key)) return difference(before, after);
  return [`new key: ${after.key.id}`, ...(isObject(after.old) ? difference(before, after.old) : [])];
}

function change(act) {
  const lines = changed(act);
  if (!lines.length) return "–";
  const list = el("ul", { class: "plain small" }, ...lines.map(text => el("li", { text })));
  return lines.length <= 3 ? list : el("details", {}, el("summary", { text: `${lines.length} values` }), list);
}

export async function logView({ query }) {
  const page = await get("/v1/log", { account: query.account, before: query.before, limit: LIMIT });
  const field = fieldOf({ name: "account", label: "Only about the account", value: query.account });
  const form = el("form", { class: "row", on: { submit: event => { event.preventDefault(); goTo("log", null, { account: field.value() }); } } }, field.box, el("button", { type: "submit", text: "Show" }));
  const columns = [
    { title: "Time (UTC)", time: true, of: act => moment(act.time) },
    { title: "Who", wide: true, of: act => el("div", {}, el("div", { text: act.actor.name }), el("div", { class: "dim small", text: [act.actor.role, act.actor.address].filter(Boolean).join(", ") })) },
    { title: "What", name: true, of: act => el("div", {}, el("code", { text: act.action }), act.error ? el("div", { class: "bad small", text: act.error }) : null) },
    { title: "About", name: true, of: act => el("div", {}, act.account ? el("a", { href: link("accounts", act.account), text: act.account }) : null, act.subject ? el("div", { class: "small", text: act.subject }) : null) },
    { title: "Change", wide: true, of: change },
  ];
  return { title: "Log", nodes: [form, table("What operators did, newest first", columns, page.data, "Nothing was done yet."),
    el("div", { class: "acts" }, query.before ? el("a", { class: "button", href: link("log", null, { account: query.account }), text: "Newest" }) : null,
      page.next ? el("a", { class: "button", href: link("log", null, { account: query.account, before: page.next }), text: "Older acts" }) : null)] };
}

const ROLES = [["read", "read: sees everything but the list of operators, changes nothing"], ["support", "support: suspends accounts, manages keys"], ["billing", "billing: adds and corrects credit"], ["admin", "admin: may do all there is"]];

export async function operatorsView() {
  const operators = (await get("/v1/operators")).data;
  const columns = [
    { title: "Name", of: one => el("div", {}, el("div", { text: one.id === operator().id ? `${one.name} (you)` : one.name }), el("code", { class: "dim small", text: one.id })) },
    { title: "Role", word: true, of: one => one.role },
    { title: "Made (UTC)", time: true, wide: true, of: one => moment(one.created_at) },
    { title: "Ends (UTC)", time: true, wide: true, of: one => (one.expires_at ? moment(one.expires_at) : "never") },
    { title: "Status", word: true, of: one => el("span", { class: `tag ${one.state === "active" ? "good" : "bad"}`, text: one.state }) },
    { title: "", of: one => (one.state === "revoked" ? "" : el("button", { type: "button", class: "danger", text: "Revoke", "aria-label": `Revoke ${one.name}, ${one.id}`, on: { click: () => revoke(one) } })) },
  ];
  return { title: "Operators", nodes: [el("div", { class: "acts" }, el("button", { type: "button", class: "main", text: "Create an operator", on: { click: create } })), table("Operators", columns, operators, "None.")] };
}

async function create() {
  const made = await formDialog({
    title: "Create an operator", act: "Create",
    fields: [
      { name: "name", label: "Name", required: true, length: 64 },
      { name: "role", label: "Role", type: "select", options: ROLES, value: "read" },
      { name: "expires_in", label: "The token ends after", hint: "Such as 90d. Empty: never.", check: text => (text === "" || /^\d+[smhd]$/.test(text) ? null : "A time is a number with d, h, m or s, such as 90d.") },
    ],
    send: ({ name, role, expires_in }) => ask("POST", "/v1/operators", expires_in === "" ? { name, role } : { name, role, expires_in }),
  });
  if (!made) return;
  await secretDialog(`The token of ${made.name}`, made.token, "the token");
  await done(`The operator ${made.name} is made.`);
}

async function revoke(one) {
  const own = one.id === operator().id ? " It is your own: you are signed out." : "";
  const sure = await confirmDialog(`Revoke ${one.name}?`, `The token and every session by it end at once.${own}`, "Revoke", () => ask("DELETE", `/v1/operators/${encodeURIComponent(one.id)}`));
  if (sure) await done(`${one.name} is revoked.`);
}

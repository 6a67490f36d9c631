// The accounts: search, pages, and making one.

import { el, table } from "/console/dom.js";
import { account, ask, currency, get, may } from "/console/api.js";
import { amount, fieldOf, formDialog } from "/console/forms.js";
import { done, doneAt, goTo, link } from "/console/place.js";

const LIMIT = 50;
export const TIERS = [["free", "Free"], ["lite", "Lite"], ["pro", "Pro"], ["enterprise", "Enterprise"]];
export const status = account => el("span", { class: `tag ${account.status === "active" ? "good" : "bad"}`, text: account.status });

export async function accountsView({ query }) {
  const page = await get("/v1/accounts", { search: query.search, after: query.after, limit: LIMIT });
  const field = fieldOf({ name: "search", label: "Search by name", type: "search", value: query.search });
  const form = el("form", { class: "row", role: "search", on: { submit: event => { event.preventDefault(); goTo("accounts", null, { search: field.value() }); } } },
    field.box, el("button", { type: "submit", text: "Search" }));
  const columns = [
    { title: "Account", of: row => el("a", { href: link("accounts", row.name), text: row.name }) },
    { title: "Status", word: true, of: status },
    { title: "Tier", wide: true, of: row => row.tier },
    { title: `Balance, ${currency()}`, number: true, of: row => row.balance },
    { title: "Held", number: true, wide: true, of: row => row.held },
    { title: "Used this month", number: true, wide: true, of: row => row.monthly_used },
  ];
  return {
    title: "Accounts",
    nodes: [
      el("div", { class: "row" }, form, may("manage") ? el("button", { type: "button", class: "main", text: "Create an account", on: { click: create } }) : null),
      table("Accounts", columns, page.data, query.search ? `No account's name has “${query.search}” in it.` : "There is no account yet."),
      el("div", { class: "acts" },
        query.after ? el("a", { class: "button", href: link("accounts", null, { search: query.search }), text: "First page" }) : null,
        page.next ? el("a", { class: "button", href: link("accounts", null, { search: query.search, after: page.next }), text: "Next page" }) : null),
    ],
  };
}

async function create() {
  const name = await formDialog({
    title: "Create an account", act: "Create",
    fields: [
      { name: "name", label: "Name", required: true, length: 64, hint: "1 to 64 of A-Z a-z 0-9 . _ @ -; it cannot be changed later." },
      { name: "tier", label: "Tier", type: "select", options: TIERS, value: "free" },
      { name: "monthly_quota", label: "Monthly quota", hint: "Empty: the tier's.", ...amount },
    ],
    send: async values => {
      const body = { name: values.name, tier: values.tier };
      if (values.monthly_quota !== "") body.monthly_quota = values.monthly_quota;
      await ask("POST", "/v1/accounts", body);
      return values.name;
    },
  });
  if (name) doneAt(`The account ${name} is made.`, "accounts", name);
}

// What a line NAME=VALUE can say, and reads as what it was.
const isLine = ([name, value]) => !/[\r\n]/.test(value) && !name.includes("=") && name === name.trim();

// What an operator says of an account: a change of it, in one request.
export async function editTerms(facts) {
  const all = Object.entries(facts.metadata ?? {}), lines = all.filter(isLine), others = all.length - lines.length;
  const metadata = lines.map(([name, value]) => `${name}=${value}`).join("\n");
  const ownQuota = facts.own_quota ? facts.monthly_quota : "";
  const changed = await formDialog({
    title: `Terms of ${facts.name}`, act: "Save",
    fields: [
      { name: "tier", label: "Tier", type: "select", options: TIERS, value: String(facts.tier).toLowerCase() },
      { name: "monthly_quota", label: "Monthly quota", value: ownQuota, hint: "Empty: the tier's.", ...amount },
      { name: "low_balance", label: "Low balance", value: facts.low_balance ?? "", hint: "Below it an event says that the credit is low. Empty: never.", ...amount },
      { name: "metadata", label: "Metadata", type: "area", value: metadata, hint: `A line for each: NAME=VALUE, at most 16.${others ? ` ${others} more that no line can show stay as they are.` : ""}`,
        check: text => (text.split("\n").every(line => line.trim() === "" || /^[^=]+=/.test(line)) ? null : "Each line is NAME=VALUE.") },
    ],
    send: async values => {
      const change = {};
      if (values.tier !== String(facts.tier).toLowerCase()) change.tier = values.tier;
      if (values.monthly_quota !== ownQuota) change.monthly_quota = values.monthly_quota || null;
      if (values.low_balance !== (facts.low_balance ?? "")) change.low_balance = values.low_balance || null;
      const names = {};
      if (values.metadata !== metadata) {
        const read = new Map(values.metadata.split("\n").filter(line => line.trim() !== "").map(line => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]));
        for (const [name, value] of read) if (facts.metadata?.[name] !== value) names[name] = value;
        for (const [name] of lines) if (!read.has(name)) names[name] = null;
      }
      if (Object.keys(names).length) change.metadata = names;
      if (Object.keys(change).length) await ask("PATCH", account(facts.name), change);
    },
  });
  if (changed) await done("The terms are saved.");
}

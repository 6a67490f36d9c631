// Calls and what they cost, by account, model and key.

import { count, counted, el, idText, moment, sum, table } from "/console/dom.js";
import { currency, get } from "/console/api.js";
import { fieldOf } from "/console/forms.js";
import { goTo, link } from "/console/place.js";

const LIMIT = 50;

export const callColumns = () => [
  { title: "Time (UTC)", time: true, of: call => moment(call.created_at) },
  { title: "Model", name: true, of: call => el("div", {}, call.model ? idText(call.model) : "–", call.provider_name ? el("div", { class: "dim small", text: call.provider_name }) : null) },
  { title: "Key", wide: true, of: call => el("code", { class: "small", text: call.key }) },
  { title: "Tokens in", number: true, wide: true, of: call => count(call.tokens_prompt) },
  { title: "Tokens out", number: true, wide: true, of: call => count(call.tokens_completion) },
  { title: `Cost, ${currency()}`, number: true, of: call => call.total_cost },
  { title: "End", wide: true, of: call => String(call.ending ?? "–").replaceAll("_", " ") },
  { title: "Id", wide: true, of: call => el("code", { class: "small", text: call.id }) },
];

export async function callsView({ query }) {
  const fields = ["account", "model", "key"].map(name => fieldOf({ name, label: { account: "Account", model: "Model", key: "Key's id" }[name], value: query[name], required: name === "account" }));
  const form = el("form", { class: "row", novalidate: true, on: { submit: event => {
    event.preventDefault();
    if (!fields[0].check()) { fields[0].input.focus(); return; }
    goTo("calls", null, Object.fromEntries(fields.map(field => [field.name, field.value()])));
  } } }, ...fields.map(field => field.box), el("button", { type: "submit", text: "Show" }));
  if (!query.account) return { title: "Calls", nodes: [form, el("p", { class: "dim", text: "Name the account whose calls you want to see." })] };
  const page = await get("/v1/generations", { account: query.account, model: query.model, key: query.key, before: query.before, limit: LIMIT });
  return {
    title: "Calls",
    nodes: [form, el("p", { class: "dim small", text: `${counted(page.data.length, "call")} on this page, ${sum(page.data.map(call => String(call.total_cost ?? 0)))} ${currency()} in all` }),
      table("Calls", callColumns(), page.data, "No such call."),
      el("div", { class: "acts" }, query.before ? el("a", { class: "button", href: link("calls", null, { ...query, before: "" }), text: "Newest" }) : null,
        page.next ? el("a", { class: "button", href: link("calls", null, { ...query, before: page.next }), text: "Older calls" }) : null)],
  };
}

// The keys of an account: a new key's text is shown once.

import { el, moment, table } from "/console/dom.js";
import { account, ask, may } from "/console/api.js";
import { amount, confirmDialog, formDialog, secretDialog } from "/console/forms.js";
import { done, link } from "/console/place.js";

const words = text => text.split(/[\s,]+/).filter(Boolean);
const isOver = key => key.state !== "active";

export function keysSection(facts, place) {
  return el("section", { data: { part: "keys" } }, el("h2", { tabindex: -1, text: "Keys" }),
    may("keys") && facts.status !== "closed" ? el("div", { class: "acts" }, el("button", { type: "button", class: "main", text: "Create a key", on: { click: () => create(facts) } })) : null,
    place);
}

export function keysTable(facts, page) {
  const columns = [
    { title: "Key", of: key => el("div", {}, el("code", { text: key.id }), key.label ? el("div", { class: "small", text: key.label }) : null) },
    { title: "Made (UTC)", time: true, wide: true, of: key => moment(key.created_at) },
    { title: "Ends (UTC)", time: true, wide: true, of: key => (key.expires_at ? moment(key.expires_at) : "never") },
    { title: "Limit", number: true, wide: true, of: key => (key.limit ? `${key.limit}${key.limit_reset && key.limit_reset !== "none" ? ` ${key.limit_reset}` : ""}` : "none") },
    { title: "Status", word: true, of: key => el("span", { class: `tag ${isOver(key) ? "bad" : "good"}`, text: key.state }) },
    { title: "", of: key => el("div", { class: "acts" },
      may("keys") && !isOver(key) && facts.status !== "closed" ? el("button", { type: "button", text: "Rotate", "aria-label": `Rotate ${key.id}`, on: { click: () => rotate(key) } }) : null,
      may("keys") && key.state !== "revoked" ? el("button", { type: "button", class: "danger", text: "Revoke", "aria-label": `Revoke ${key.id}`, on: { click: () => revoke(key) } }) : null,
      el("a", { href: link("calls", null, { account: facts.name, key: key.id }), "aria-label": `Calls of ${key.id}`, text: "Calls" })) },
  ];
  return [table("Keys", columns, page.data, "None.")];
}

async function create(facts) {
  const made = await formDialog({
    title: `Create a key for ${facts.name}`, act: "Create",
    fields: [
      { name: "label", label: "Label", hint: "What it is for.", length: 64 },
      { name: "limit", label: "Limit", hint: "The most that it may spend. Empty: what the account has.", ...amount },
      { name: "limit_reset", label: "The limit begins anew", type: "select", options: [["", "never"], ["daily", "each day"], ["weekly", "each week"], ["monthly", "each month"]], value: "" },
      { name: "expires_in", label: "Ends after", hint: "Such as 90d or 12h. Empty: never.", check: text => (text === "" || /^\d+[smhd]$/.test(text) ? null : "A time is a number with d, h, m or s, such as 90d.") },
      { name: "domains", label: "Only for pages of", hint: "Domains with a space between, such as app.example.com *.example.com." },
      { name: "models", label: "Only for models", hint: "Ids or patterns with a space between, such as openai/*." },
    ],
    send: async values => {
      const body = {};
      for (const name of ["label", "limit", "limit_reset", "expires_in"]) if (values[name] !== "") body[name] = values[name];
      for (const name of ["domains", "models"]) if (words(values[name]).length) body[name] = words(values[name]);
      return ask("POST", `${account(facts.name)}/keys`, body);
    },
  });
  if (!made) return;
  await secretDialog(`The new key of ${facts.name}`, made.key, "the key");
  await done(`The key ${made.id} is made.`);
}

async function rotate(key) {
  const made = await formDialog({
    title: `Rotate ${key.id}`, act: "Rotate",
    about: "A new key is made with the same settings. The old one goes on for a while, so that clients can be changed over.",
    fields: [{ name: "overlap", label: "The old key ends after", value: "24h", required: true, hint: "Such as 24h or 7d; 0s: at once.", check: text => (/^\d+[smhd]$/.test(text) ? null : "A time is a number with d, h, m or s, such as 24h.") }],
    send: values => ask("POST", `/v1/keys/${encodeURIComponent(key.id)}/rotate`, { overlap: values.overlap }),
  });
  if (!made) return;
  await secretDialog(`The key in place of ${key.id}`, made.key, "the key");
  await done(`The key ${made.id} takes the place of ${key.id}.`);
}

async function revoke(key) {
  const sure = await confirmDialog(`Revoke ${key.id}?`, "Whoever uses it is refused within a second. This cannot be undone.", "Revoke", () => ask("DELETE", `/v1/keys/${encodeURIComponent(key.id)}`));
  if (sure) await done(`The key ${key.id} is revoked.`);
}

// The wallet: what a key's account has and spends. The key stands in `key` and nowhere else.

import { byDay, byName } from "./chart.js";
import { $, copier, count, counted, days, el, exact, idText, million, moment, pricesCell, say, sum, table, tile, today } from "./dom.js";

const base = new URL(".", location.href).href.replace(/\/$/, "");
let currency = document.body.dataset.currency;
let key = "", models = [], calls = [], next = null;

// Answers come in any order. Of each part of the page the one that was asked for last is shown, and none of a key that is not the key any more.
// What `begin` returns says whether that is still so.
const turns = { key: 0, spend: 0, calls: 0 };
function begin(part) {
  turns[part] += 1;
  const mine = { ...turns };
  return () => turns[part] === mine[part] && turns.key === mine.key;
}

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, by) {
  let answer;
  try {
    answer = await fetch(`${base}/${path}`, { headers: { authorization: `Bearer ${by}` }, cache: "no-store", credentials: "omit" });
  } catch {
    throw new Refused(0, "There is no answer. Try again in a moment.");
  }
  const text = await answer.text();
  let read = null;
  try { read = exact(text); } catch { /* An answer of something in between. */ }
  if (!answer.ok || read === null) throw new Refused(answer.status, read?.error?.message ?? `The answer has the status ${answer.status}.`);
  return read;
}

function showCredit(balance, own) {
  currency = balance.currency;
  const [used, quota] = [Number(balance.monthly_used), Number(balance.monthly_quota)];
  const pay = document.body.dataset.topUp;
  const limit = own.limit === null ? "no limit of its own" : `${own.limit_remaining} of ${own.limit} ${currency} left${own.limit_reset ? ` (${own.limit_reset})` : ""}`;
  const unit = currency, meter = el("meter", { min: 0, max: quota || 1, value: Math.min(used, quota || 1), "aria-label": "Part of the month's quota that is used" });
  $("tiles").replaceChildren(
    tile("Balance", balance.balance, { unit }, ...(pay ? [el("a", { class: "button main", href: pay, rel: "noreferrer noopener", text: "Top up" })] : [])),
    tile("Held by running calls", balance.held, { unit }, "given back when a call ends, but for what it costs"),
    tile("Used this month", balance.monthly_used, { unit }, meter, `of ${balance.monthly_quota} ${currency}`),
    tile("This key", own.label ?? own.id, {}, limit, `used ${own.usage_daily} today, ${own.usage} ${currency} in all`, `tier ${balance.tier}; ${counted(own.rate_limit.requests, "call")} a minute${own.expires_at ? `; expires ${moment(own.expires_at)} UTC` : ""}`));
}

async function showSpend(isLatest) {
  const back = Number($("range").value) - 1, from = today(back), to = today();
  const usage = await ask(`llm/usage?from=${from}&to=${to}&group_by=day`, key);
  if (!isLatest()) return;
  $("by-day").replaceChildren(byDay("Spend by day", days(from, to), usage.groups.map(({ day, cost }) => ({ day, name: "", cost })), currency));
  $("by-model").replaceChildren(byName("Spend by model", usage.by_model.map(row => ({ ...row, name: row.model })), currency));
}

const ENDINGS = { complete: "complete", client_gone: "the client left", drain_ended: "cut off", upstream_failed: "the provider failed", dropped: "dropped" };
function showCalls() {
  const columns = [
    { title: "Time (UTC)", time: true, of: call => moment(call.created_at) },
    { title: "Model", name: true, of: call => idText(call.model) },
    { title: "Tokens in", number: true, wide: true, of: call => count(call.tokens_prompt) },
    { title: "Tokens out", number: true, wide: true, of: call => count(call.tokens_completion) },
    { title: `Cost, ${currency}`, number: true, of: call => call.total_cost },
    { title: "End", wide: true, of: call => ENDINGS[call.ending] ?? call.ending },
    { title: "Id", wide: true, of: call => el("code", { class: "small", text: call.id }) },
  ];
  const shown = sum(calls.map(call => call.total_cost));
  $("calls").replaceChildren(el("p", { class: "dim small", text: calls.length ? `${counted(calls.length, "call")} here, ${shown} ${currency} together` : "" }),
    table("Calls and what they cost", columns, calls, next === null ? "No call yet, or no receipts are kept." : "None among the newest: look further back."));
  $("more").hidden = next === null;
}

async function loadCalls(isLatest, more) {
  // Older calls can be asked for once the newest of this filter are here.
  if (!more) { next = null; $("more").hidden = true; }
  const query = new URLSearchParams({ limit: "20" });
  if (more && next !== null) query.set("before", next);
  if ($("of-model").value) query.set("model", $("of-model").value);
  const page = await ask(`llm/generations?${query}`, key);
  if (!isLatest()) return;
  calls = more ? [...calls, ...page.data] : page.data;
  next = page.next;
  showCalls();
}

const shell = text => `'${text.replaceAll("'", `'\\''`)}'`;
// JSON text is a literal in Python and in JavaScript too, once it is ASCII.
const literal = text => JSON.stringify(text).replace(/[\u007f-\uffff]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function snippets(model) {
  const shown = $("with-key").checked ? key : "YOUR_KEY";
  if (model.architecture?.modality?.includes("->embedding")) {
    const body = JSON.stringify({ model: model.id, input: ["one text", "another"] });
    return [
      ["curl", `curl -s ${shell(`${base}/embeddings`)} \\\n  -H ${shell(`Authorization: Bearer ${shown}`)} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(body)}`],
      ["Python", `# pip install openai\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${literal(base)}, api_key=${literal(shown)})\nvectors = client.embeddings.create(model=${literal(model.id)}, input=["one text", "another"])\nprint(len(vectors.data), "vectors of", len(vectors.data[0].embedding))`],
      ["Node", `// npm install openai; save it as vectors.mjs\nimport OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: ${literal(base)}, apiKey: ${literal(shown)} });\nconst vectors = await client.embeddings.create({ model: ${literal(model.id)}, input: ["one text", "another"] });\nconsole.log(vectors.data.length, "vectors of", vectors.data[0].embedding.length);`],
    ];
  }
  const question = "Say hello in one short sentence.";
  const body = JSON.stringify({ model: model.id, messages: [{ role: "user", content: question }] });
  return [
    ["curl", `curl -s ${shell(`${base}/chat/completions`)} \\\n  -H ${shell(`Authorization: Bearer ${shown}`)} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(body)}`],
    ["Python", `# pip install openai\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${literal(base)}, api_key=${literal(shown)})\nstream = client.chat.completions.create(\n    model=${literal(model.id)},\n    messages=[{"role": "user", "content": ${literal(question)}}],\n    stream=True,\n)\nfor chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\nprint()`],
    ["Node", `// npm install openai; save it as hello.mjs\nimport OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: ${literal(base)}, apiKey: ${literal(shown)} });\nconst stream = await client.chat.completions.create({\n  model: ${literal(model.id)},\n  messages: [{ role: "user", content: ${literal(question)} }],\n  stream: true,\n});\nfor await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\nconsole.log();`],
  ];
}

function showSnippets() {
  const model = models.find(model => model.id === $("model").value);
  $("snippets").replaceChildren(...(model ? snippets(model).map(([name, text]) => el("section", { "aria-label": name, data: { snippet: name.toLowerCase() } },
    el("div", { class: "acts" }, el("h3", { text: name }), copier(() => text, `the ${name} lines`)), el("pre", { tabindex: 0, role: "region", "aria-label": `${name} lines`, text })))
    : [el("p", { class: "dim", text: "This key may use no model." })]));
}

function showModels(first) {
  const options = list => list.map(model => el("option", { value: model.id, text: model.id }));
  $("model").replaceChildren(...options(models));
  if (models.some(model => model.id === first)) $("model").value = first;
  $("of-model").replaceChildren(el("option", { value: "", text: "all models" }), ...options(models));
  const columns = [
    { title: "Model", of: model => el("div", {}, el("div", { text: model.name }), el("code", { class: "dim" }, idText(model.id))) },
    { title: "Prompt", number: true, of: model => million(model.pricing.prompt) },
    { title: "Completion", number: true, of: model => million(model.pricing.completion) },
    { title: "Context", number: true, wide: true, of: model => count(model.context_length) },
    { title: "Other prices", wide: true, of: model => pricesCell(model.pricing) },
  ].filter(column => column.title !== "Other prices" || models.some(model => pricesCell(model.pricing) !== ""));
  $("models").replaceChildren(table("Models of this key and their prices", columns, models, "This key may use no model."));
  showSnippets();
}

function forget() {
  begin("key");
  key = "";
  [models, calls, next] = [[], [], null];
  for (const id of ["tiles", "by-day", "by-model", "calls", "snippets", "models", "model", "of-model"]) $(id).replaceChildren();
  $("key").value = "";
  $("wallet").hidden = $("who").hidden = true;
  $("open").hidden = false;
  delete document.body.dataset.ready;
}

// An error of the key stands at its field, any other above what is shown.
function fail(error) {
  if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
    forget();
    $("key-error").textContent = error.message;
    $("key").setAttribute("aria-invalid", "true");
    $("key").focus();
  } else say($("notice"), error.message, true);
}
const guarded = (part, act) => async () => {
  const isLatest = begin(part);
  try { $("notice").replaceChildren(); await act(isLatest); } catch (error) { if (isLatest()) fail(error); }
};

const open = guarded("key", async isLatest => {
  const typed = $("key").value.trim();
  $("key-error").textContent = "";
  $("key").removeAttribute("aria-invalid");
  if (!/^[!-~]+$/.test(typed)) {
    $("key-error").textContent = typed ? "A key has letters and digits only." : "Type or paste your key.";
    $("key").setAttribute("aria-invalid", "true");
    $("key").focus();
    return;
  }
  key = typed;
  // Alone at first: a wrong key is one failure, and not four.
  const balance = await ask("llm/balance", typed);
  if (!isLatest()) return;
  const [own, listed, purposes] = await Promise.all(["key", "llm/models", "llm/models/purposes"].map(path => ask(path, typed)));
  if (!isLatest()) return;
  models = listed.models;
  showCredit(balance, own.data);
  showModels(purposes.chat);
  $("of-model").value = "";
  await Promise.all([showSpend(isLatest), loadCalls(isLatest, false)]);
  if (!isLatest()) return;
  $("key").value = "";
  $("open").hidden = true;
  $("wallet").hidden = $("who").hidden = false;
  $("title").focus();
  document.body.dataset.ready = "yes";
});

$("open").addEventListener("submit", event => { event.preventDefault(); open(); });
$("forget").addEventListener("click", () => { forget(); say($("notice"), "The key is forgotten."); $("key").focus(); });
$("range").addEventListener("change", guarded("spend", showSpend));
$("of-model").addEventListener("change", guarded("calls", isLatest => loadCalls(isLatest, false)));
$("filter").addEventListener("submit", event => event.preventDefault());
$("more").addEventListener("click", guarded("calls", async isLatest => {
  const before = calls.length;
  await loadCalls(isLatest, true);
  if (isLatest() && $("more").hidden && calls.length >= before) $("calls-title").focus();
}));
$("model").addEventListener("change", showSnippets);
$("with-key").addEventListener("change", showSnippets);

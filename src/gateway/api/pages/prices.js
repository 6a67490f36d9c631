// The public list of models and prices: what `GET {base}/llm/public/models` says, as a table.

import { $, count, el, idText, million, pricesCell, table } from "./dom.js";

const PER_PAGE = 500, PAGES_MAX = 40;
let models = [];

function show() {
  const search = $("search").value.trim().toLowerCase();
  const found = models.filter(model => [model.id, model.name, model.provider].some(text => String(text).toLowerCase().includes(search)));
  $("found").textContent = search ? `${found.length} of ${models.length} models` : `${models.length} models`;
  const columns = [
    { title: "Model", of: model => el("div", {}, el("div", { text: model.name }), el("code", { class: "dim" }, idText(model.id))) },
    { title: "Prompt", number: true, of: model => million(model.pricing.prompt) },
    { title: "Completion", number: true, of: model => million(model.pricing.completion) },
    { title: "Context", number: true, wide: true, of: model => count(model.context_length) },
    { title: "Tier", wide: true, of: model => model.tier },
  ];
  if (found.some(model => pricesCell(model.pricing) !== "")) columns.push({ title: "Other prices", wide: true, of: model => pricesCell(model.pricing) });
  $("models").replaceChildren(table("Models and their prices", columns, found, "No model is called so."));
}

async function load() {
  for (let page = 1, pages = 1; page <= Math.min(pages, PAGES_MAX); page += 1) {
    const answer = await fetch(`llm/public/models?per_page=${PER_PAGE}&page=${page}`, { credentials: "omit" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const listed = await answer.json();
    models.push(...listed.models);
    pages = listed.total_pages;
  }
}

$("search").addEventListener("input", show);
$("filter").addEventListener("submit", event => event.preventDefault());
try {
  await load();
  show();
} catch (error) {
  $("found").textContent = `The list cannot be read: ${error.message}`;
}
document.body.dataset.ready = "yes";

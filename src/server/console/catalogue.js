// Models with what they cost the operator and what they are sold at, and the providers with their breakers.

import { count, el, idText, million, pricesCell, table } from "/console/dom.js";
import { currency, get } from "/console/api.js";
import { fieldOf } from "/console/forms.js";

export async function modelsView() {
  const models = (await get("/v1/models")).data;
  const place = el("div"), found = el("p", { class: "dim small", role: "status" });
  const search = fieldOf({ name: "search", label: "Search", type: "search" });
  const show = () => {
    const text = search.value().toLowerCase();
    const shown = models.filter(model => [model.id, model.name, model.provider].some(part => String(part ?? "").toLowerCase().includes(text)));
    found.textContent = `${shown.length} of ${models.length} models; prices in ${currency()} for a million tokens`;
    const columns = [
      { title: "Model", name: true, of: model => el("div", {}, el("div", { text: model.name ?? model.id }), el("code", { class: "dim small" }, idText(model.id))) },
      { title: "Sold: prompt", number: true, of: model => million(model.pricing?.prompt) },
      { title: "Sold: completion", number: true, of: model => million(model.pricing?.completion) },
      { title: "Provider's: prompt", number: true, wide: true, of: model => million(model.provider_pricing?.prompt) },
      { title: "Provider's: completion", number: true, wide: true, of: model => million(model.provider_pricing?.completion) },
      { title: "Tier", wide: true, of: model => model.tier },
      { title: "Context", number: true, wide: true, of: model => (model.context_length ? count(model.context_length) : "–") },
      { title: "Targets", wide: true, of: model => (model.targets ?? []).map(target => `${target.provider}: ${target.model}`).join(", ") },
      { title: "Other prices", wide: true, of: model => pricesCell(model.pricing) },
    ];
    place.replaceChildren(table("Models and prices", columns.filter(column => column.title !== "Other prices" || shown.some(model => pricesCell(model.pricing) !== "")), shown, "No model is called so."));
  };
  search.input.addEventListener("input", show);
  show();
  return { title: "Models", nodes: [el("form", { class: "row", role: "search", on: { submit: event => event.preventDefault() } }, search.box), found, place] };
}

export const openBreakers = provider => provider.targets.filter(target => target.breaker_open).length;

export async function providersView() {
  const providers = (await get("/v1/providers")).data;
  const tag = (text, good) => el("span", { class: `tag ${good ? "good" : "bad"}`, text });
  const state = provider => {
    const open = openBreakers(provider);
    if (!provider.on) return tag("off", false);
    return open > 0 ? tag(open === provider.targets.length ? "down" : "failing", false) : tag("up", true);
  };
  const breakers = provider => { const open = openBreakers(provider); return open > 0 ? `${open} of ${provider.targets.length} open` : "closed"; };
  const target = one => el("li", { class: one.breaker_open ? "bad" : undefined, text: `${one.model}${one.breaker_open ? ": breaker open" : ""}${one.credential_refused ? ": credential refused" : ""}` });
  const columns = [
    { title: "Provider", of: provider => el("div", {}, el("div", { text: provider.name }), el("div", { class: "dim small", text: provider.address })) },
    { title: "State", of: state },
    { title: "Breakers", of: breakers },
    { title: "Credential", of: provider => (!provider.on ? "is not set" : provider.targets.some(one => one.credential_refused) ? el("span", { class: "bad", text: "refused" }) : "good") },
    { title: "Targets", wide: true, of: provider => el("ul", { class: "plain small" }, ...provider.targets.map(target)) },
  ];
  return { title: "Providers", nodes: [el("p", { class: "dim", text: "A breaker opens when a target fails again and again: other targets of the model are asked then, until it answers again." }),
    table("Providers and their breakers", columns, providers, "None is configured.")] };
}

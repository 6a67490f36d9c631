// What every page needs: elements whose text is text, exact amounts, tables, and what is said when something happens.

// Text from data goes through textContent alone: there is no way into markup from here.
export function el(name, set = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(set)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") made.textContent = String(value);
    else if (key === "class") made.className = value;
    else if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (key === "data") Object.assign(made.dataset, value);
    else if (value === true) made.setAttribute(key, "");
    else made.setAttribute(key, String(value));
  }
  made.append(...children.filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

// An id that may be broken after its separators alone, where there is room for a part of it.
export const idText = text => el("span", {}, ...String(text).split(/(?<=[/:@_])/).flatMap((part, at) => (at ? [el("wbr"), part] : [part])));

export const $ = id => document.getElementById(id);

export function svg(name, set = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(set)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

// Amounts are decimal text with at most 12 digits behind the point. JSON numbers of amounts become text before a float can round them.
const AMOUNTS = "balance|held|hold|monthly_quota|monthly_used|cost|total_cost|usage|usage_daily|usage_weekly|usage_monthly|limit|limit_remaining|end_user_limit|remaining";
const AS_NUMBER = new RegExp(`"(${AMOUNTS})":(-?\\d+(?:\\.\\d+)?(?:[eE][-+]?\\d+)?)(?=[,}\\]])`, "g");
export const exact = text => JSON.parse(text.replace(AS_NUMBER, '"$1":"$2"'));

const DIGITS = 12;
export function pico(text) {
  const found = /^(-?)(\d+)(?:\.(\d{1,12}))?$/.exec(String(text ?? ""));
  if (!found) return null;
  const whole = BigInt(found[2] + (found[3] ?? "").padEnd(DIGITS, "0"));
  return found[1] ? -whole : whole;
}
export function decimal(amount) {
  const digits = (amount < 0n ? -amount : amount).toString().padStart(DIGITS + 1, "0");
  const behind = digits.slice(-DIGITS).replace(/0+$/, "");
  return (amount < 0n ? "-" : "") + digits.slice(0, -DIGITS) + (behind ? "." + behind : "");
}
export const sum = texts => decimal(texts.reduce((all, text) => all + (pico(text) ?? 0n), 0n));
// For the height of a bar, where a rounded figure does no harm.
export const height = text => Number(text) || 0;

// A decimal text, its point moved to the right.
export function shifted(text, places) {
  const found = /^(\d+)(?:\.(\d+))?$/.exec(String(text ?? ""));
  if (!found) return null;
  const behind = (found[2] ?? "").padEnd(places, "0");
  const whole = (found[1] + behind.slice(0, places)).replace(/^0+(?=\d)/, "");
  const rest = behind.slice(places).replace(/0+$/, "");
  return rest ? `${whole}.${rest}` : whole;
}

export const count = number => Number(number ?? 0).toLocaleString("en-US");
export const counted = (number, one) => `${count(number)} ${one}${Number(number) === 1 ? "" : "s"}`;
export const moment = at => {
  const time = at === null || at === undefined ? NaN : new Date(at).getTime();
  return Number.isNaN(time) ? "–" : new Date(time).toISOString().slice(0, 19).replace("T", " ");
};
export const today = (back = 0) => new Date(Date.now() - back * 86400e3).toISOString().slice(0, 10);
export function days(from, to) {
  const found = [];
  for (let at = Date.parse(from); at <= Date.parse(to) && found.length < 400; at += 86400e3) found.push(new Date(at).toISOString().slice(0, 10));
  return found;
}

// A figure and what is said of it.
export function tile(title, value, { unit, look } = {}, ...notes) {
  const long = String(value).length > 13 ? "long" : null;
  return el("div", { class: "tile" }, el("h3", { text: title }), el("b", { class: [look, long].filter(Boolean).join(" ") || undefined }, String(value), unit ? el("small", { text: ` ${unit}` }) : null),
    ...notes.map(note => (typeof note === "string" ? el("p", { text: note }) : note)));
}

// How many digits a number has behind its point; null when it is none.
export const behind = text => { const found = /^-?[\d,]+(?:\.(\d+))?$/.exec(text); return found && (found[1]?.length ?? 0); };
const EMPTY = ["", "–"];

// A table: columns are { title, number, wide, time, word, name, of: row => text or element }. Numbers of a column have their points below each other. On a
// narrow screen the wide columns stand below their row, by their titles.
export function table(caption, columns, rows, empty) {
  const look = column => [column.number && "n", column.wide && "wide", column.time && "t", column.word && "w", column.name && "m"].filter(Boolean).join(" ") || undefined;
  const shown = (column, row) => { const value = column.of(row); return value instanceof Node ? value : value === null || value === undefined ? "–" : String(value); };
  const digits = columns.map(column => (column.number ? Math.max(0, ...rows.map(row => behind(shown(column, row)) ?? 0)) : 0));
  const cell = (column, row, at) => {
    const value = shown(column, row), box = el("td", { class: look(column) }, value), own = digits[at] > 0 ? behind(value) : null;
    if (own !== null && own < digits[at]) box.dataset.pad = (own === 0 ? "." : "") + "0".repeat(digits[at] - own);
    return box;
  };
  const wide = columns.filter(column => column.wide);
  const more = row => {
    const parts = wide.map(column => [column.title, shown(column, row)]).filter(([, value]) => !EMPTY.includes(value));
    return el("tr", { class: "more" }, el("td", { colspan: columns.length - wide.length }, el("dl", {}, ...parts.map(([title, value]) => el("div", {}, el("dt", { text: title }), el("dd", {}, value))))));
  };
  const head = el("tr", {}, ...columns.map(column => el("th", { scope: "col", class: look(column), text: column.title || undefined }, column.title ? null : el("span", { class: "vh", text: "Acts" }))));
  const body = el("tbody", {}, ...(rows.length ? rows.flatMap(row => [el("tr", {}, ...columns.map((column, at) => cell(column, row, at))), ...(wide.length ? [more(row)] : [])])
    : [el("tr", {}, el("td", { class: "dim", colspan: columns.length, text: empty ?? "None." }))]));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", { class: wide.length ? "folds" : undefined }, el("caption", { class: "vh", text: caption }), el("thead", {}, head), body));
}

// Says something to those who see and those who listen.
export function say(place, text, bad = false) {
  place.className = bad ? "notice bad" : "notice";
  place.replaceChildren(text);
}

export function copier(text, name) {
  const button = el("button", { type: "button", text: "Copy", "aria-label": `Copy ${name}` });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied: mark it and copy by hand";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 3000);
  });
  return button;
}

// The list prices of a model, for a million tokens; those beyond prompt and completion under their names.
const KINDS = [["input_cache_read", "cache read"], ["input_cache_write", "cache write"], ["input_cache_write_1h", "cache write, 1 h"], ["internal_reasoning", "reasoning"],
  ["audio", "audio in"], ["audio_output", "audio out"], ["image", "image in"], ["image_output", "image out"]];
export const million = price => price === undefined || price === null ? "–" : shifted(price, 6) ?? String(price);
export function morePrices(pricing) {
  const texts = (row, kinds) => [...kinds.filter(([key]) => row[key] !== undefined).map(([key, name]) => `${name} ${million(row[key])}`),
    ...(row.request === undefined ? [] : [`a call ${row.request}`])];
  const all = [["prompt", "prompt"], ["completion", "completion"], ...KINDS];
  const long = (rows, where) => (rows ?? []).map(row => `${where}above ${count(row.min_prompt_tokens)} prompt tokens: ${texts(row, all).join(", ")}`);
  const tiers = Object.entries(pricing?.tiers ?? {});
  // A tier has rows for long prompts of its own, and none of the usual ones.
  return [...texts(pricing ?? {}, KINDS), ...long(pricing?.overrides, tiers.length ? "without a service tier, " : ""),
    ...tiers.flatMap(([tier, row]) => [`service tier ${tier}: ${texts(row, all).join(", ")}`, ...long(row.overrides, `service tier ${tier}, `)])];
}
export function pricesCell(pricing) {
  const rows = morePrices(pricing);
  return rows.length ? el("ul", { class: "small plain" }, ...rows.map(text => el("li", { text }))) : "";
}

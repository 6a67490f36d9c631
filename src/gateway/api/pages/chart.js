// Charts as SVG, each with the table of its figures behind it.

import { count, decimal, el, height, idText, pico, svg, table } from "./dom.js";

const SERIES_MAX = 6;
const WIDTH = 720, HEIGHT = 176, LEFT = 8, BOTTOM = 20, TOP = 18;

// The names that a chart shows by themselves, the dearest first; what is left is one.
function ranked(rows) {
  const totals = new Map();
  for (const { name, cost } of rows) totals.set(name, (totals.get(name) ?? 0n) + (pico(cost) ?? 0n));
  const names = [...totals].sort((a, b) => (a[1] < b[1] ? 1 : a[1] > b[1] ? -1 : a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { names: names.slice(0, SERIES_MAX), others: names.length > SERIES_MAX, totals };
}

// Spend by day, in parts by name where rows have one: rows are { day, name, cost }, all days are shown.
export function byDay(title, all, rows, currency) {
  const { names, others } = ranked(rows);
  const shown = others ? [...names, "others"] : names;
  const place = name => { const at = names.indexOf(name); return at < 0 ? shown.length - 1 : at; };
  const sums = new Map(all.map(day => [day, shown.map(() => 0n)]));
  for (const { day, name, cost } of rows) { const sum = sums.get(day); if (sum) sum[place(name)] += pico(cost) ?? 0n; }
  const totals = all.map(day => sums.get(day).reduce((a, b) => a + b, 0n));
  const top = totals.reduce((a, b) => (a > b ? a : b), 0n);
  const scale = value => (top > 0n ? (height(decimal(value)) / height(decimal(top))) * (HEIGHT - TOP - BOTTOM) : 0);
  const step = (WIDTH - LEFT) / Math.max(all.length, 1), wide = Math.max(Math.min(step * 0.72, 48), 1);
  const total = decimal(totals.reduce((a, b) => a + b, 0n));
  if (rows.every(row => (pico(row.cost) ?? 0n) === 0n)) return el("figure", {}, el("figcaption", { text: `${title}: 0 ${currency}` }), el("p", { class: "dim", text: `Nothing was spent from ${all[0]} to ${all.at(-1)}.` }));
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${total} ${currency} from ${all[0]} to ${all.at(-1)}` });
  picture.append(svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  all.forEach((day, i) => {
    let base = HEIGHT - BOTTOM;
    const bar = svg("g", {}, svg("title"));
    bar.firstChild.textContent = `${day}: ${decimal(totals[i])} ${currency}`;
    sums.get(day).forEach((value, part) => {
      const tall = scale(value);
      if (value <= 0n) return;
      base -= tall;
      bar.append(svg("rect", { class: `s${part === SERIES_MAX ? 6 : part}`, x: (LEFT + i * step + (step - wide) / 2).toFixed(1), y: base.toFixed(1), width: wide.toFixed(1), height: Math.max(tall, 1).toFixed(1) }));
    });
    picture.append(bar);
  });
  const axis = el("div", { class: "axis small dim", "aria-hidden": "true" }, el("span", { text: all[0] ?? "" }), el("span", { text: `highest day ${decimal(top)} ${currency}` }), el("span", { text: all.at(-1) ?? "" }));
  const legend = el("ul", { class: "legend" }, ...shown.map((name, i) => el("li", {}, key(i), name)));
  const columns = [{ title: "Day", of: row => row.day, time: true }, ...shown.map((name, i) => ({ title: name || "Cost", number: true, of: row => decimal(row.parts[i]) })),
    ...(shown.length > 1 ? [{ title: "All", number: true, of: row => decimal(row.total) }] : [])];
  const figures = all.map((day, i) => ({ day, parts: sums.get(day), total: totals[i] })).filter(row => row.total !== 0n).reverse();
  return el("figure", {}, el("figcaption", { text: `${title}: ${total} ${currency}` }), picture, axis, shown.length > 1 || shown[0] ? legend : null,
    el("details", {}, el("summary", { text: "The figures as a table" }), table(title, columns, figures, "Nothing was spent.")));
}

function key(i) {
  return svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `s${i >= SERIES_MAX ? 6 : i}`, width: 10, height: 10, rx: 2 }));
}

// Spend by name, as bars with their figures: rows are { name, cost, requests, tokens }.
export function byName(title, rows, currency) {
  const sorted = [...rows].sort((a, b) => { const [x, y] = [pico(a.cost) ?? 0n, pico(b.cost) ?? 0n]; return x < y ? 1 : x > y ? -1 : 0; });
  const top = height(sorted[0]?.cost);
  const columns = [{ title: "Model", name: true, of: row => idText(row.name) }, { title: "Calls", number: true, of: row => count(row.requests) }, { title: "Tokens", number: true, of: row => count(row.tokens) },
    { title: `Cost, ${currency}`, number: true, of: row => row.cost }];
  const bars = el("div", { class: "bars", "aria-hidden": "true" });
  sorted.slice(0, 12).forEach(row => {
    const long = top > 0 ? Math.max((height(row.cost) / top) * 100, height(row.cost) > 0 ? 0.5 : 0) : 0;
    bars.append(el("div", {}, el("span", { text: row.name }), svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" }, svg("rect", { class: "s0", width: long.toFixed(2), height: 10 })), el("span", { text: row.cost })));
  });
  return el("figure", {}, el("figcaption", { text: title }), sorted.length ? bars : el("p", { class: "dim", text: "Nothing was spent." }),
    el("details", {}, el("summary", { text: "The figures as a table" }), table(title, columns, sorted, "Nothing was spent.")));
}

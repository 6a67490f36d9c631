// Where the console is: the address behind `#`, and what is to be told at the next view.

let show = async () => {};
let told = null, toldToo = null;

export const showBy = act => { show = act; };

// `#/accounts/acme?x=y` as its parts.
export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  let name = null;
  try { name = rest.length ? decodeURIComponent(rest.join("/")) : null; } catch { /* No address of ours. */ }
  return { view: view || "accounts", name, query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

export function link(view, name, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${set.length ? `?${new URLSearchParams(set)}` : ""}`;
}

export function goTo(view, name, query) {
  const hash = link(view, name, query);
  if (location.hash === hash) show(); else location.hash = hash;
}

// The view as it is now.
export const redraw = () => show();

function tell(text) {
  told = [text, toldToo].filter(Boolean).join(" ");
  toldToo = null;
}

// Says what was done, and shows the view as it is now.
export async function done(text) {
  tell(text);
  await show();
}

// Says what was done at the view of what was made.
export function doneAt(text, view, name) {
  tell(text);
  goTo(view, name);
}

// What is said with the next thing that is done.
export const tellToo = text => { toldToo = text; };

// What is to be told: by each page until a view could be shown, so that neither a failure nor a sign-in loses it.
export const whatIsTold = () => told;
export function endTold() { told = null; }

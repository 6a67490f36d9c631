// Parts of a page that are read on their own: what cannot be read hides nothing of the others, says why, and can be asked for again.

import { el } from "/console/dom.js";

// One after the other. What is given must not fail.
export function inOrder() {
  let last = Promise.resolve();
  return act => (last = last.then(act));
}

// `read` gets what `builders` show: by the name of each place a function that answers its nodes. `load` begins to read, once the places stand in
// the page, and never fails.
export function partOf(read, builders, inTurn = act => act()) {
  const names = Object.keys(builders), places = Object.fromEntries(names.map(name => [name, el("div")]));
  const fill = (nodesOf, isBusy) => {
    for (const name of names) {
      places[name].setAttribute("aria-busy", String(isBusy));
      places[name].replaceChildren(...nodesOf(name));
    }
  };
  const readNow = async () => {
    // The page shows something else by now.
    if (!places[names[0]].isConnected) return;
    try {
      const found = await read(), made = Object.fromEntries(names.map(name => [name, builders[name](found)]));
      fill(name => made[name], false);
    } catch (error) {
      console.info(error);
      fill(name => failed(name, error), false);
    }
  };
  const load = () => {
    fill(() => [el("p", { class: "dim", text: "Loading…" })], true);
    return inTurn(readNow);
  };
  const again = name => {
    // The button goes, and the focus must not go with it.
    places[name].closest("section").querySelector("h2").focus();
    load();
  };
  const failed = (name, error) => [el("p", { class: "notice bad", role: "alert", text: error.message }),
    el("div", { class: "acts" }, el("button", { type: "button", text: "Try again", "aria-label": `Try again: ${name}`, on: { click: () => again(name) } }))];
  return { places, load };
}

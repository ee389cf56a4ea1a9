// A view that is one list, of all brokers, with a field to search it; and what its rows are made of.

import { get } from "./api.js";
import { h } from "./dom.js";
import { showAgain } from "./screen.js";
import { cutNote } from "./tables.js";

/** The rows of a list of all brokers, as many as come at once, and the brokers that are missing. */
export async function firstRows(path) {
  const { items, silent, next } = await get(`${path}?limit=1000`);
  return { items: Object.assign(items, { isCut: next !== null }), silent };
}

/** A state in words and colour; `known`: the kind and the words of those that have some. */
export function stateTag(known, state) {
  const [kind, text] = known[state] ?? ["plain", state.toLowerCase()];
  return h("span", { class: `state ${kind}` }, text);
}

/**
 * What to show of a list. `search`: {text}, kept by the view; `name`: what rows are found by;
 * `what`: a row in words; `none`: what to say while there are no rows at all.
 */
export function listView({ title, what, items, silent, search, name, none, show }) {
  const find = `Find a ${what}`;
  const found = items.filter((one) => name(one).includes(search.text));
  const oninput = (event) => {
    search.text = event.target.value;
    showAgain();
  };
  return [
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, title),
      h("input", { type: "search", placeholder: find, "aria-label": find, value: search.text, oninput }),
    ),
    silent.length > 0 &&
      h(
        "p",
        { class: "banner bad", key: "silent" },
        `Those of broker ${silent.join(", ")} are missing: it cannot be reached.`,
      ),
    found.length === 0
      ? h("p", { class: "empty", key: "empty" }, items.length ? `No ${what} has such a name.` : none)
      : show(found),
    cutNote(items),
  ];
}

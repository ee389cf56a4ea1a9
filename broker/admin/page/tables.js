// Tables that can be sorted by a click on a head.

import { Problem } from "./api.js";
import { h } from "./dom.js";
import { showAgain } from "./screen.js";
import { count } from "./words.js";

const orders = new Map();

/**
 * `columns`: {head, cell(row), kind, by, note}. `kind` is "number", "wide" (left out on phones) or
 * both; a column with `by`, which returns what to sort by, can be sorted. `key` names a row.
 */
export function table({ name, caption, columns, rows, key }) {
  const shown = columns.filter(Boolean);
  return h(
    "div",
    { class: "scroll", key: name },
    h(
      "table",
      {},
      caption && h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          shown.map((column) => head(name, column)),
        ),
      ),
      h(
        "tbody",
        {},
        sorted(name, shown, rows).map((row) =>
          h(
            "tr",
            { key: key(row) },
            shown.map((column) => h("td", { class: column.kind ?? "" }, column.cell(row))),
          ),
        ),
      ),
    ),
  );
}

function head(name, { head: text, kind = "", by, note }) {
  if (!by) return h("th", { class: kind, scope: "col", title: note }, text);
  const order = orders.get(name);
  const isHere = order?.head === text;
  const way = isHere ? (order.isDown ? "descending" : "ascending") : null;
  const turn = () => {
    // Numbers are looked at largest first, names from A.
    orders.set(name, { head: text, isDown: isHere ? !order.isDown : kind.includes("number") });
    showAgain();
  };
  return h(
    "th",
    { class: kind, scope: "col", title: note, "aria-sort": way },
    h("button", { class: `order ${way ?? ""}`, onclick: turn }, text),
  );
}

function sorted(name, columns, rows) {
  const order = orders.get(name);
  const by = columns.find((column) => column.head === order?.head)?.by;
  if (!by) return rows;
  const sign = order.isDown ? -1 : 1;
  return rows.toSorted((one, other) => sign * compare(by(one), by(other)));
}

function compare(one, other) {
  if (typeof one === "string") return one.localeCompare(other, "en", { numeric: true });
  return (one ?? -1) - (other ?? -1);
}

/** Says so if there are more rows than are shown. */
export function cutNote(rows) {
  if (!rows.isCut) return null;
  const text = `Of the first ${count(rows.length)}; the admin API lists all.`;
  return h("p", { class: "aside", key: "cut" }, text);
}

/** A part of a view: its heading, and what there is, or why it is not known, or that it is empty. */
export function section({ name, title, aside, found, empty, show }) {
  let body;
  if (found instanceof Problem) body = h("p", { class: "unknown" }, `Not known now: ${found.message}`);
  else if (found.length === 0) body = h("p", { class: "empty" }, empty);
  else body = show(found);
  return h(
    "section",
    { key: name, "aria-label": name },
    h("div", { class: "head" }, h("h2", {}, title), aside),
    body,
    cutNote(found),
  );
}

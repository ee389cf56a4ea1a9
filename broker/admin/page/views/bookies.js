// The storage below: bookies, their disks, and ledgers that lack copies.

import { get, list, Problem, tried } from "../api.js";
import { bar } from "../charts.js";
import { h } from "../dom.js";
import { partitionLink } from "../links.js";
import { section, table } from "../tables.js";
import { ago, bytes, NOTHING, plural, time } from "../words.js";

const FULL = 0.9;
const STATES = { writable: ["good", "writable"], read_only: ["warn", "read-only"], down: ["bad", "down"] };

async function load() {
  const [bookies, lacking] = await Promise.all([
    list("/bookies"),
    tried(get("/under-replication?limit=200")),
  ]);
  return { bookies, lacking };
}

export function bookieState(bookie) {
  const [kind, text] = STATES[bookie.state];
  return h("span", { class: `state ${kind}` }, text);
}

/** How full its disk is, if it says so. */
export function disk(bookie) {
  const total = bookie.disk_total_bytes;
  if (!total) return NOTHING;
  const used = 1 - bookie.disk_free_bytes / total;
  return h(
    "span",
    { class: "disk" },
    bar(used, used > FULL ? "bad" : ""),
    ` ${bytes(bookie.disk_free_bytes)} of ${bytes(total)} free`,
  );
}

function card(bookie) {
  const address = bookie.address === bookie.bookie_id ? null : bookie.address;
  const where = [
    bookie.state === "down" ? "not registered" : address,
    bookie.rack && `rack ${bookie.rack}`,
  ].filter(Boolean);
  return h(
    "article",
    { class: `card ${STATES[bookie.state][0]}`, key: bookie.bookie_id },
    h("h2", {}, h("span", {}, bookie.bookie_id), bookieState(bookie)),
    where.length > 0 && h("p", { class: "address" }, where.join(" · ")),
    bookie.disk_total_bytes !== null && h("p", {}, disk(bookie)),
    bookie.state === "down" &&
      h(
        "p",
        { class: "aside" },
        "Its ledgers lack copies until it is back, or auto recovery has copied them.",
      ),
    bookie.state === "read_only" &&
      h("p", { class: "aside" }, "It serves reads and takes no new entries: look at its disk."),
  );
}

function lackingTable(rows) {
  return table({
    name: "lacking",
    rows,
    key: (one) => one.ledger_id,
    columns: [
      { head: "Ledger", kind: "number", cell: (one) => `L${one.ledger_id}` },
      { head: "Of", cell: (one) => (one.topic === null ? NOTHING : partitionLink(one.topic, one.partition)) },
      { head: "Missing on", cell: (one) => one.bookies.join(", ") },
      {
        head: "Since",
        kind: "wide",
        cell: (one) => h("span", { title: time(one.since_ms) }, ago(one.since_ms)),
      },
    ],
  });
}

function show({ bookies, lacking }) {
  const found = lacking instanceof Problem ? lacking : lacking.items;
  const many = lacking.next
    ? `the first ${found.length}`
    : found.length > 0 && plural(found.length, "ledger");
  return [
    h("h1", { key: "title" }, "Bookies"),
    bookies.length === 0 && h("p", { class: "empty", key: "none" }, "No bookie ever registered."),
    h("section", { class: "cards", key: "cards", "aria-label": "Bookies" }, bookies.map(card)),
    section({
      name: "Copies",
      title: "Ledgers that lack copies",
      aside: many && h("span", { class: "aside" }, `${many}; auto recovery copies them, where it runs`),
      found,
      empty: "Every ledger has all its copies, as far as anybody noticed.",
      show: lackingTable,
    }),
  ];
}

export const bookies = { name: "bookies", title: () => "Bookies", load, show };

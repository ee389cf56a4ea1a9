// A partition as what it is: a chain of ledgers, each striped over bookies.
//
// Every ledger is a card, as wide as it is large. Inside, one row per bookie: where the row is
// filled, the bookie holds entries. A fragment (a run of entries on the same bookies) is a block.
// Entry i goes to the write quorum from member i on: with as many members as copies a block is
// solid, with more members it shows as slanting stripes. While there are few entries every stripe
// is one entry; otherwise the stripes are a pattern. On phones the cards stand below each other.

import { h } from "./dom.js";
import { ago, bytes, count, plural, time } from "./words.js";

const ROW = 18;
const GAP = 5;
const WIDE = 100;
const STRIPES_MAX = 24;
const STATES = { writable: "writable", read_only: "read-only", down: "down" };

/** Below what a bookie that is not listed any more counts as. */
export function stateOf(states, bookie) {
  return states.get(bookie) ?? "down";
}

function bookiesOf(segments) {
  const names = new Set(segments.flatMap((s) => s.fragments.flatMap((f) => f.bookies)));
  return [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}

/** `states`: bookie -> writable, read_only or down. `segments`: oldest first. */
export function chain({ segments, states, selected, onSelect, hasOlder, writer }) {
  const bookies = bookiesOf(segments);
  const most = Math.max(1, ...segments.map((s) => s.bytes ?? 0));
  return h(
    "div",
    { class: "chain", key: "chain" },
    h("div", { class: "rows", "aria-hidden": "true" }, names(bookies, states)),
    h(
      "ol",
      { class: "segments", "aria-label": "Ledgers, oldest first", onkeydown: walk, mounted: showNewest },
      hasOlder && h("li", { class: "older", key: "older" }, "older ones before these"),
      segments.map((segment, index) => {
        const isNewEpoch = segments[index - 1]?.leader_epoch !== segment.leader_epoch;
        const isSelected = segment.ledger_id === selected;
        return card({ segment, bookies, states, most, isNewEpoch, isSelected, onSelect });
      }),
      h(
        "li",
        { class: "writes", key: "writes" },
        writer === null ? "nobody writes" : `broker ${writer} writes`,
      ),
    ),
    legend(segments, states),
  );
}

function names(bookies, states) {
  return bookies.map((bookie) => {
    const state = stateOf(states, bookie);
    return h("span", { class: `bookie ${state}`, key: bookie, title: `${bookie}: ${STATES[state]}` }, bookie);
  });
}

// The newest ledger stands at the right end, where writing goes on.
function showNewest(list) {
  list.scrollLeft = list.scrollWidth;
}

// Arrow keys go along the chain.
function walk(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 1, ArrowDown: -1 }[event.key];
  if (step === undefined) return;
  const cards = [...event.currentTarget.querySelectorAll("button")];
  const next = cards[cards.indexOf(document.activeElement) + step];
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
}

function legend(segments, states) {
  const held = segments.flatMap((s) => s.fragments.flatMap((f) => f.bookies)).map((b) => stateOf(states, b));
  const isStriped = segments.some((s) => s.write_quorum < s.ensemble_size);
  const entry = (kind, text) => h("span", { key: text }, h("i", { class: `key ${kind}` }), text);
  return h(
    "p",
    { class: "legend", "aria-hidden": "true" },
    entry("sealed", "holds copies of a sealed ledger"),
    segments.some((s) => !s.is_sealed) && entry("open", "of the ledger being written"),
    held.includes("read_only") && entry("read_only", "on a read-only bookie"),
    held.includes("down") && entry("lost", "on a bookie that is down"),
    isStriped && h("span", { key: "stripes" }, "stripes: every entry is on some of the bookies"),
  );
}

export function offsetRange(segment) {
  if (segment.base_offset === null) return "not known yet";
  const end = segment.last_offset;
  if (end !== null && end < segment.base_offset) return "no records";
  return `${count(segment.base_offset)} to ${end === null ? "…" : count(end)}`;
}

function words(segment) {
  if (segment.state === "missing") return "missing";
  if (segment.is_sealed) return "sealed";
  return segment.state.replace("_", " ");
}

function card({ segment, bookies, states, most, isNewEpoch, isSelected, onSelect }) {
  const share = Math.sqrt((segment.bytes ?? 0) / most);
  const isLacking = segment.fragments.some((f) => f.bookies.some((b) => stateOf(states, b) === "down"));
  const range = offsetRange(segment);
  const lives = bookiesOf([segment]).join(", ");
  const said = [
    `Ledger ${segment.ledger_id}`,
    words(segment),
    `offsets ${range}`,
    bytes(segment.bytes),
    `on ${lives}`,
  ];
  return h(
    "li",
    { key: segment.ledger_id, style: { "--share": share.toFixed(3) } },
    h(
      "button",
      {
        class: `segment ${segment.state} ${isLacking ? "lacking" : ""}`,
        "aria-pressed": String(isSelected),
        "aria-label": said.join(", "),
        onclick: () => onSelect(segment.ledger_id),
      },
      h(
        "span",
        { class: "title" },
        h("b", {}, `L${segment.ledger_id}`),
        isNewEpoch &&
          h("span", { class: "epoch", title: "A new leader began here" }, `epoch ${segment.leader_epoch}`),
      ),
      h("span", { class: "range" }, range),
      h(
        "span",
        { class: "cells" },
        h("span", { class: "names" }, names(bookies, states)), // at phone width only
        grid(segment, bookies, states),
      ),
      h("span", { class: "size" }, bytes(segment.bytes), h("span", { class: "word" }, words(segment))),
    ),
  );
}

function grid(segment, bookies, states) {
  const height = bookies.length * (ROW + GAP) - GAP;
  const lane = (bookie, row) =>
    h("rect", { class: "lane", x: 0, y: row * (ROW + GAP), width: WIDE, height: ROW });
  return h(
    "svg",
    {
      class: "grid",
      viewBox: `0 0 ${WIDE} ${height}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
      style: { height: `${height}px` },
    },
    bookies.map(lane),
    blocks(segment).map((block) => cells(block, segment, bookies, states)),
  );
}

/** Where each fragment lies in the card: its share of the entries, or equal shares. */
function blocks({ fragments }) {
  const sizes = fragments.map((f) => (f.last_entry === null ? null : f.last_entry - f.first_entry + 1));
  const total = sizes.includes(null) ? 0 : sizes.reduce((sum, size) => sum + size, 0);
  const wanted = sizes.map((size) => (total > 0 ? Math.max(0.05, size / total) : 1 / sizes.length));
  const whole = wanted.reduce((sum, share) => sum + share, 0);
  let at = 0;
  return fragments.map((fragment, index) => {
    const width = (wanted[index] / whole) * WIDE;
    const block = { fragment, size: sizes[index], x: at, width };
    at += width;
    return block;
  });
}

function cells({ fragment, size, x, width }, segment, bookies, states) {
  const ensemble = fragment.bookies;
  const seam = x > 0 ? 1 : 0;
  const cell = (bookie, from, wide) =>
    h("rect", {
      class: `cell ${stateOf(states, bookie)}`,
      x: (x + seam + from).toFixed(2),
      y: bookies.indexOf(bookie) * (ROW + GAP),
      width: wide.toFixed(2),
      height: ROW,
    });
  if (size === 0) return [];
  if (segment.write_quorum >= ensemble.length) return ensemble.map((bookie) => cell(bookie, 0, width - seam));
  const pattern = Math.min(STRIPES_MAX, ensemble.length * 2);
  const stripes = size !== null && size <= STRIPES_MAX ? size : pattern;
  const step = (width - seam) / stripes;
  return Array.from({ length: stripes }, (_, stripe) => {
    const first = fragment.first_entry + stripe;
    const writeSet = Array.from(
      { length: segment.write_quorum },
      (__, copy) => ensemble[(first + copy) % ensemble.length],
    );
    return writeSet.map((bookie) => cell(bookie, stripe * step, step * (stripes > 1 ? 0.88 : 1)));
  });
}

/** Everything about one segment, in words. */
export function facts(segment, states) {
  const entries =
    segment.last_entry === null ? "being written" : plural(segment.last_entry + 1, "entry", "entries");
  const rows = [
    ["State", segment.is_sealed ? `${segment.state}, sealed for ever` : segment.state.replace("_", " ")],
    ["Offsets", offsetRange(segment)],
    ["Size", `${bytes(segment.bytes)} in ${entries}`],
    [
      "Copies",
      `${segment.write_quorum} of each entry, ${segment.ack_quorum} synced before an acknowledgement`,
    ],
    ["Striped over", plural(segment.ensemble_size, "bookie")],
    [
      "Begun",
      `${ago(segment.created_ms)}, in leader epoch ${segment.leader_epoch}`,
      time(segment.created_ms),
    ],
    (segment.max_timestamp_ms ?? -1) >= 0 && [
      "Newest record",
      ago(segment.max_timestamp_ms),
      time(segment.max_timestamp_ms),
    ],
  ].filter(Boolean);
  return h(
    "div",
    { class: "facts" },
    h(
      "dl",
      {},
      rows.map(([name, value, title]) =>
        h("div", { key: name }, h("dt", {}, name), h("dd", { title }, value)),
      ),
    ),
    fragments(segment, states),
  );
}

function fragments(segment, states) {
  const many = segment.fragments.length;
  return h(
    "table",
    {},
    h(
      "caption",
      {},
      many === 1 ? "Where its entries are" : `${many} fragments: bookies were replaced while it was written`,
    ),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { class: "number", scope: "col" }, "From entry"),
        h("th", { class: "number", scope: "col" }, "To"),
        h("th", { scope: "col" }, "Bookies"),
      ),
    ),
    h(
      "tbody",
      {},
      segment.fragments.map((fragment) =>
        h(
          "tr",
          { key: fragment.first_entry },
          h("td", { class: "number" }, count(fragment.first_entry)),
          h("td", { class: "number" }, fragment.last_entry === null ? "…" : count(fragment.last_entry)),
          h("td", {}, names(fragment.bookies, states)),
        ),
      ),
    ),
  );
}

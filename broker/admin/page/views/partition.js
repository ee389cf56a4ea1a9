// One partition: the chain of its ledgers, its records, and what can be done to it.

import { button, refusal } from "../access.js";
import { get, list, part, post, Problem, put, remove, tried } from "../api.js";
import { chain, facts } from "../chain.js";
import { ask } from "../dialogs.js";
import { h } from "../dom.js";
import { brokerLink, topicLink, trail } from "../links.js";
import { refresh, showAgain } from "../screen.js";
import { section, table } from "../tables.js";
import { ago, bytes, count, cut, NOTHING, perSecond, plural, rate, time } from "../words.js";
import { publish } from "./publish.js";
import { partitionState } from "./topic.js";

const SEGMENTS = 40;
const RECORDS = 10;
const VALUE_BYTES = 300;
const KEY_CHARS = 60;
let selected = null;
/** First offset to show; null: the newest records. */
let from = null;

async function load([topic, index]) {
  const path = `/topics/${part(topic)}/partitions/${index}`;
  const place = from === null ? `last=${RECORDS}` : `offset=${from}`;
  const [about, partition, segments, bookies, brokers, records] = await Promise.all([
    tried(get(`/topics/${part(topic)}`)),
    get(path),
    tried(get(`${path}/segments?order=newest&limit=${SEGMENTS}`)),
    tried(list("/bookies")),
    tried(list("/brokers")),
    recordsOf(`${path}/records?${place}&limit=${RECORDS}&value_bytes_max=${VALUE_BYTES}`),
  ]);
  const states = new Map(Array.isArray(bookies) ? bookies.map((one) => [one.bookie_id, one.state]) : []);
  const isLed = partition.state === "led" && about.is_compacted;
  const compaction = isLed ? await tried(get(`${path}/compaction`)) : null;
  return { path, partition, segments, states, brokers, records, compaction };
}

/** Those of a page, or why they are not to be seen: who may not is not refused again and again. */
function recordsOf(address) {
  const why = refusal("peek_records");
  return why === null ? tried(get(address)) : new Problem(403, { detail: why });
}

// --- what can be done ---

function move({ path, partition, brokers }) {
  const takers = Array.isArray(brokers) ? brokers.filter((one) => !one.is_unloaded) : [];
  ask({
    title: "Who should lead it?",
    text: [
      "The leader closes its ledger and the other broker goes on in a new one, in well under a second.",
      "Clients follow by themselves. It stays there while that broker is there.",
    ],
    fields: [
      {
        name: "broker",
        label: "Leader",
        value: String(partition.pinned_to ?? partition.leader ?? ""),
        options: [
          ["", "leave it to the brokers"],
          ...takers.map((one) => [String(one.broker_id), `broker ${one.broker_id}`]),
        ],
      },
    ],
    button: "Move",
    act: async ({ broker }) => {
      if (broker === "") await remove(`${path}/leader`);
      else await put(`${path}/leader`, { broker_id: Number(broker) });
      refresh();
      return broker === "" ? "The brokers decide again." : `Broker ${broker} takes over.`;
    },
  });
}

function roll({ path }) {
  ask({
    title: "Begin a new ledger?",
    text: [
      "Writing goes on in a new ledger, and the present one is closed for ever. No producer waits for it.",
      "Retention and trimming delete whole ledgers, so a closed one can go when its records may.",
    ],
    button: "Roll",
    act: async () => {
      await post(`${path}/roll`);
      refresh();
      return "Writing goes on in a new ledger.";
    },
  });
}

/** What trimming to an offset means, in words. */
function trimmed({ partition, segments }, word) {
  const before = Number(word);
  if (word === "" || partition.high_watermark === null) return null;
  if (before > partition.high_watermark)
    return `The log ends at ${count(partition.high_watermark)}: no offset above that is possible.`;
  const records = Math.max(0, before - partition.log_start_offset);
  if (records === 0) return "Nothing lies before that offset.";
  const items = segments instanceof Problem ? [] : segments.items;
  const gone = items.filter((one) => one.is_sealed && one.last_offset < before);
  const freed = gone.reduce((sum, one) => sum + one.bytes, 0);
  const deleted = `${plural(gone.length, "ledger")} (${bytes(freed)}) deleted`;
  return `${plural(records, "offset")} can be read no more; ${deleted}.`;
}

function trim(data, before) {
  const { path, partition } = data;
  ask({
    title: "Drop the oldest records?",
    text: [
      "Records below this offset are gone for good, for every reader.",
      "Ledgers that hold no others are deleted.",
    ],
    fields: [
      {
        name: "before_offset",
        label: "First offset to keep",
        type: "number",
        min: 0,
        value: before ?? partition.log_start_offset,
        required: true,
      },
    ],
    button: "Trim",
    danger: true,
    preview: ({ before_offset }) => trimmed(data, before_offset),
    act: async ({ before_offset }) => {
      await post(`${path}/trim`, { before_offset: Number(before_offset) });
      selected = null;
      refresh();
      return `The log starts at ${count(Number(before_offset))} now.`;
    },
  });
}

// --- what is shown ---

function buttons(data, [topic, index], isInternal) {
  const isLed = data.partition.state === "led";
  return [
    !isInternal &&
      button(
        "publish_to_partition",
        { onclick: () => publish(topic, Number(index)), disabled: !isLed },
        "Publish",
      ),
    button("move_partition", { onclick: () => move(data) }, "Move leader"),
    button("roll_partition", { onclick: () => roll(data), disabled: !isLed }, "Roll"),
    button("trim_partition", { class: "danger", onclick: () => trim(data), disabled: !isLed }, "Trim"),
  ];
}

function lead(partition, [topic, index]) {
  const { leader, high_watermark: end, log_start_offset: start } = partition;
  const grown = end === null ? null : rate(`partition ${topic} ${index}`, end);
  return h(
    "p",
    { class: "lead", key: "lead" },
    leader === null ? "Nobody leads it. " : ["Led by ", brokerLink(leader)],
    leader !== null && partition.pinned_to !== null && ", where somebody moved it",
    partition.leader_epoch !== null && `, epoch ${count(partition.leader_epoch)}. `,
    end !== null &&
      `${plural(end - start, "record")}, ${bytes(partition.bytes)}, offsets ${count(start)} to ${count(end)}, ` +
        `${perSecond(grown)} in.`,
  );
}

function ledgers(data) {
  const { partition, states } = data;
  const segments = data.segments.items.toReversed();
  const picked = segments.find((one) => one.ledger_id === selected);
  const pick = (ledger) => {
    selected = selected === ledger ? null : ledger;
    showAgain();
    document.querySelector(".picked")?.scrollIntoView({ block: "nearest" });
  };
  const writer = partition.state === "led" ? partition.leader : null;
  return [
    chain({ segments, states, selected, onSelect: pick, hasOlder: data.segments.next !== null, writer }),
    picked
      ? pickedLedger(data, picked)
      : h(
          "p",
          { class: "aside", key: "hint" },
          "A ledger is a run of records that is sealed once and never changes. " +
            "Each row is a bookie, filled where it holds copies. Choose a ledger to see more.",
        ),
  ];
}

function pickedLedger(data, segment) {
  const { partition, states } = data;
  const isLater =
    segment.base_offset !== null && segment.base_offset > (partition.log_start_offset ?? Infinity);
  return h(
    "article",
    { class: "card picked", key: "picked", "aria-label": `Ledger ${segment.ledger_id}` },
    h(
      "h2",
      {},
      `Ledger ${segment.ledger_id}`,
      h(
        "span",
        { class: "buttons" },
        segment.base_offset !== null &&
          button("peek_records", { onclick: () => lookAt(segment.base_offset) }, "See its records"),
        isLater &&
          button(
            "trim_partition",
            { class: "danger", onclick: () => trim(data, segment.base_offset) },
            "Drop all before it",
          ),
      ),
    ),
    facts(segment, states),
  );
}

/** When time alone makes it due; how dirty it gets is not foreseen. */
function nextDue(one) {
  if (one.why !== null) return `now (${one.why})`;
  const times = [one.overdue_ms, one.tombstones_ms].filter((at) => at !== null);
  return times.length === 0 ? NOTHING : time(Math.min(...times));
}

function compactionTable([one]) {
  return [
    one.reason !== "" && h("p", { class: "unknown", key: "reason" }, one.reason),
    table({
      name: "compaction",
      rows: [one],
      key: () => "compaction",
      columns: [
        { head: "State", cell: () => one.state },
        {
          head: "Dirty",
          kind: "number",
          cell: () => (one.dirty_percent === null ? NOTHING : `${one.dirty_percent} %`),
        },
        { head: "Clean below", kind: "number", cell: () => count(one.cleaned_until) },
        {
          head: "Last clean",
          cell: () => h("span", { title: time(one.cleaned_ms) }, one.cleaned_ms === null ? "never" : ago(one.cleaned_ms)),
        },
        { head: "Next due", cell: () => nextDue(one) },
        { head: "Saved", kind: "number", cell: () => bytes(one.saved_bytes) },
      ],
    }),
  ];
}

function compaction({ compaction: found }) {
  return section({
    name: "Compaction",
    title: "Compaction",
    found: found instanceof Problem ? found : [found],
    empty: "",
    show: compactionTable,
  });
}

function lookAt(offset) {
  from = offset;
  refresh();
}

function valueOf(one) {
  if (one.value === null) return h("i", {}, "no value");
  if (one.value_encoding === "base64") return h("i", {}, `${bytes(one.value_size)} that are not text`);
  return [h("code", {}, one.value), one.is_truncated && h("i", {}, ` … ${bytes(one.value_size)}`)];
}

function recordTable(rows) {
  return table({
    name: "records",
    rows,
    key: (one) => one.offset,
    columns: [
      { head: "Offset", kind: "number", cell: (one) => count(one.offset) },
      {
        head: "Age",
        kind: "wide",
        cell: (one) => h("span", { title: time(one.timestamp_ms) }, ago(one.timestamp_ms)),
      },
      { head: "Key", cell: (one) => (one.key === null ? "–" : h("code", {}, cut(one.key, KEY_CHARS))) },
      { head: "Value", kind: "value", cell: valueOf },
    ],
  });
}

function records({ partition, records: found }) {
  const jump = (event) => {
    event.preventDefault();
    const word = new FormData(event.target).get("offset");
    lookAt(word === "" ? null : Number(word));
  };
  const isKnown = !(found instanceof Problem);
  const rows = isKnown ? found.records : [];
  const start = rows[0]?.offset ?? from ?? 0;
  const canGoOn = from !== null && isKnown && found.next_offset < found.high_watermark;
  return section({
    name: "Records",
    title: from === null ? "Newest records" : `Records from offset ${count(from)}`,
    aside: h(
      "form",
      { class: "jump", onsubmit: jump },
      button(
        "peek_records",
        {
          type: "button",
          onclick: () => lookAt(Math.max(partition.log_start_offset ?? 0, start - RECORDS)),
          disabled: !isKnown || start <= found.log_start_offset,
        },
        "Older",
      ),
      button(
        "peek_records",
        { type: "button", onclick: () => lookAt(found.next_offset), disabled: !canGoOn },
        "Newer",
      ),
      button(
        "peek_records",
        { type: "button", onclick: () => lookAt(null), disabled: from === null },
        "Newest",
      ),
      h("input", {
        type: "number",
        name: "offset",
        min: 0,
        placeholder: "offset",
        "aria-label": "Show records from this offset on",
      }),
      button("peek_records", {}, "Go"),
    ),
    found: isKnown ? (from === null ? rows.toReversed() : rows) : found,
    empty: from === null ? "There are no records." : "There are no records from here on.",
    show: recordTable,
  });
}

function show(data, parts) {
  const [topic, index] = parts;
  const { partition, segments } = data;
  const many = segments instanceof Problem ? null : segments.items.length;
  const title = many === null ? "Ledgers" : `${segments.next ? "The newest " : ""}${plural(many, "ledger")}`;
  return [
    trail(h("a", { href: "#/topics" }, "Topics"), topicLink(topic)),
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, `Partition ${index}`),
      partitionState(partition),
      buttons(data, parts, topic.startsWith("__")),
    ),
    lead(partition, parts),
    section({
      name: "Ledgers",
      title,
      found: segments instanceof Problem ? segments : segments.items,
      empty: "It was never opened, so it has no ledger yet.",
      show: () => ledgers(data),
    }),
    data.compaction !== null && compaction(data),
    records(data),
  ];
}

export const partition = {
  name: "partition",
  title: ([topic, index]) => `${topic}-${index}`,
  enter: () => {
    selected = null;
    from = null;
  },
  load,
  show,
};

// All topics, and making one.

import { button } from "../access.js";
import { list, part, put } from "../api.js";
import { ask } from "../dialogs.js";
import { h } from "../dom.js";
import { topicLink } from "../links.js";
import { refresh, showAgain } from "../screen.js";
import { cutNote, table } from "../tables.js";
import { bytes, count, perSecond, rate, short } from "../words.js";

let filter = "";
let withInternal = false;

async function load() {
  return list(`/topics?internal=${withInternal}`, 2000);
}

/** "retention.ms=60000" per line as an object. */
export function settingsOf(text) {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  return Object.fromEntries(
    lines.map((line) => {
      const [name] = line.split("=");
      return [name.trim(), line.slice(name.length + 1).trim()];
    }),
  );
}

function create() {
  ask({
    title: "New topic",
    text: [
      "Each partition is a log of its own with one leader;",
      "records with one key keep their order in one partition.",
    ],
    fields: [
      {
        name: "topic",
        label: "Name",
        required: true,
        placeholder: "letters, digits, dots, underscores, hyphens",
      },
      {
        name: "partition_count",
        label: "Partitions",
        type: "number",
        min: 1,
        placeholder: "as the brokers are set",
        help: "Can grow later, never shrink.",
      },
      {
        name: "replication_factor",
        label: "Copies of each record",
        type: "number",
        min: 1,
        placeholder: "as the brokers are set",
        help: "Each on another bookie.",
      },
      {
        name: "settings",
        label: "Settings",
        type: "area",
        rows: 3,
        placeholder: "retention.ms=3600000",
        help: "One per line; what is missing has its default.",
      },
    ],
    button: "Create",
    act: async ({ topic, settings, ...sizes }) => {
      const wish = { settings: settingsOf(settings) };
      for (const [name, value] of Object.entries(sizes)) {
        if (value) wish[name] = Number(value);
      }
      await put(`/topics/${part(topic)}`, wish);
      refresh();
      return `Topic ${topic} was created.`;
    },
  });
}

function partitionsOf({ totals, partition_count }) {
  if (totals.partitions_led === partition_count) return count(partition_count);
  return h("span", { class: "bad" }, `${totals.partitions_led} of ${partition_count} led`);
}

function topicTable(rows) {
  const shown = rows.map((one) => ({ ...one, rate: rate(`topic ${one.topic}`, one.totals.produced) }));
  const name = (one) => [topicLink(one.topic), one.is_internal && h("span", { class: "tag" }, "internal")];
  return table({
    name: "topics",
    rows: shown,
    key: (one) => one.topic,
    columns: [
      { head: "Topic", cell: name, by: (one) => one.topic },
      { head: "Partitions", kind: "number", cell: partitionsOf, by: (one) => one.partition_count },
      {
        head: "Copies",
        kind: "number wide",
        note:
          "of each record, how many of them are synced before it is acknowledged, " +
          "and over how many bookies a ledger is striped",
        cell: (one) =>
          `${one.replication_factor} · ${one.min_insync_replicas} synced · over ${one.ensemble_size}`,
        by: (one) => one.replication_factor,
      },
      {
        head: "Records",
        kind: "number",
        cell: (one) => short(one.totals.records),
        by: (one) => one.totals.records,
      },
      {
        head: "Size",
        kind: "number wide",
        cell: (one) => bytes(one.totals.bytes),
        by: (one) => one.totals.bytes,
      },
      { head: "In", kind: "number", cell: (one) => perSecond(one.rate), by: (one) => one.rate },
    ],
  });
}

function show(topics) {
  const found = topics.filter((one) => one.topic.includes(filter));
  const search = (event) => {
    filter = event.target.value;
    showAgain();
  };
  const turn = (event) => {
    withInternal = event.target.checked;
    refresh();
  };
  const empty = topics.length
    ? "No topic has such a name."
    : "There are no topics yet. Make one here, or let a producer name one.";
  return [
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, "Topics"),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", checked: withInternal, onchange: turn }),
        " the brokers' own too",
      ),
      h("input", {
        type: "search",
        placeholder: "Find a topic",
        "aria-label": "Find a topic",
        value: filter,
        oninput: search,
      }),
      button("create_topic", { class: "main", onclick: create }, "New topic"),
    ),
    found.length === 0 ? h("p", { class: "empty", key: "empty" }, empty) : topicTable(found),
    cutNote(topics),
  ];
}

export const topics = { name: "topics", title: () => "Topics", load, show };

// One topic: its partitions with leaders and offsets, who reads it, its settings.

import { button } from "../access.js";
import { get, list, part, patch, Problem, remove, tried } from "../api.js";
import { ask } from "../dialogs.js";
import { h } from "../dom.js";
import { brokerLink, partitionLink, trail } from "../links.js";
import { refresh } from "../screen.js";
import { Settings } from "../settings.js";
import { section, table } from "../tables.js";
import { ago, bytes, count, perSecond, plural, rate, short, time } from "../words.js";
import { groupTable } from "./groups.js";
import { publish } from "./publish.js";
import { settingsOf } from "./topics.js";

const STATES = {
  led: ["good", "led"],
  opening: ["warn", "being opened"],
  silent: ["bad", "leader silent"],
  leaderless: ["bad", "no leader"],
};
const settings = new Settings();

async function load([name]) {
  const path = `/topics/${part(name)}`;
  const [topic, partitions, config, groups] = await Promise.all([
    get(path),
    list(`${path}/partitions`, 2000),
    tried(get(`${path}/config`)),
    tried(list(`/groups?topic=${part(name)}`)),
  ]);
  return { topic, partitions, config, groups };
}

function change({ topic, config }) {
  const own = config.settings.filter((one) => one.source === "topic");
  ask({
    title: `Change ${topic.topic}`,
    fields: [
      {
        name: "partition_count",
        label: "Partitions",
        type: "number",
        min: topic.partition_count,
        value: topic.partition_count,
        required: true,
        help: "Can only grow. Keys go to other partitions then, so their order is broken once.",
      },
      {
        name: "settings",
        label: "Settings",
        type: "area",
        rows: 5,
        value: own.map((one) => `${one.name}=${one.value}`).join("\n"),
        help: "One per line, like retention.ms=3600000. What you remove gets its default again.",
      },
    ],
    button: "Change",
    act: async ({ partition_count, settings }) => {
      const wanted = settingsOf(settings);
      const gone = own.filter((one) => !(one.name in wanted)).map((one) => [one.name, null]);
      await patch(`/topics/${part(topic.topic)}`, {
        partition_count: Number(partition_count),
        settings: { ...wanted, ...Object.fromEntries(gone) },
      });
      refresh();
      return `Topic ${topic.topic} is changed.`;
    },
  });
}

function drop({ topic, groups }) {
  const readers = Array.isArray(groups) && groups.length ? ` ${plural(groups.length, "group")} read it.` : "";
  ask({
    title: `Delete topic ${topic.topic}?`,
    text: [
      `All its ${plural(topic.totals.records, "record")} (${bytes(topic.totals.bytes)}) go, for good.${readers}`,
      "Its ledgers are deleted in the background, and bookies free the space.",
    ],
    fields: [{ name: "name", label: `Type ${topic.topic} to continue`, required: true, exactly: topic.topic }],
    button: "Delete",
    danger: true,
    act: async () => {
      await remove(`/topics/${part(topic.topic)}`);
      location.hash = "#/topics";
      return `Topic ${topic.topic} is deleted.`;
    },
  });
}

export function partitionState(partition) {
  const [kind, text] = STATES[partition.state];
  return h("span", { class: `state ${kind}` }, text);
}

function leader({ leader: id, pinned_to }) {
  if (id === null) return "–";
  return [
    brokerLink(id),
    pinned_to !== null &&
      h(
        "span",
        { class: "tag", title: "Somebody moved it; it stays there while that broker is there" },
        "moved",
      ),
  ];
}

function partitionTable(name, partitions) {
  const rows = partitions.map((one) => ({
    ...one,
    records: one.high_watermark === null ? null : one.high_watermark - one.log_start_offset,
    rate: one.high_watermark === null ? null : rate(`partition ${name} ${one.partition}`, one.high_watermark),
  }));
  return table({
    name: "partitions",
    rows,
    key: (one) => one.partition,
    columns: [
      {
        head: "Partition",
        cell: (one) => partitionLink(name, one.partition, `${one.partition}`),
        by: (one) => one.partition,
      },
      { head: "Leader", cell: leader, by: (one) => one.leader },
      { head: "State", cell: partitionState },
      {
        head: "Epoch",
        kind: "number wide",
        note: "grows with every change of leader",
        cell: (one) => count(one.leader_epoch),
        by: (one) => one.leader_epoch,
      },
      { head: "First offset", kind: "number wide", cell: (one) => count(one.log_start_offset) },
      { head: "End", kind: "number wide", cell: (one) => count(one.high_watermark) },
      { head: "Records", kind: "number", cell: (one) => short(one.records), by: (one) => one.records },
      { head: "Size", kind: "number wide", cell: (one) => bytes(one.bytes), by: (one) => one.bytes },
      { head: "In", kind: "number", cell: (one) => perSecond(one.rate), by: (one) => one.rate },
    ],
  });
}

function show(data, [name]) {
  const { topic, partitions, config, groups } = data;
  return [
    trail(h("a", { href: "#/topics" }, "Topics")),
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, topic.topic),
      topic.is_internal && h("span", { class: "tag" }, "internal"),
      !topic.is_internal && button("publish_to_topic", { onclick: () => publish(name, null) }, "Publish"),
      button("change_topic", { onclick: () => change(data), disabled: config instanceof Problem }, "Change"),
      !topic.is_internal && button("delete_topic", { class: "danger", onclick: () => drop(data) }, "Delete"),
    ),
    h(
      "p",
      { class: "lead", key: "lead" },
      `${plural(topic.totals.records, "record")}, ${bytes(topic.totals.bytes)}, made `,
      h("span", { title: time(topic.created_ms) }, ago(topic.created_ms)),
      ". ",
      `Each record on ${plural(topic.replication_factor, "bookie")}, ${topic.min_insync_replicas} of them synced ` +
        `before it is acknowledged; each ledger striped over ${topic.ensemble_size}.`,
    ),
    section({
      name: "Partitions",
      title: plural(topic.partition_count, "partition"),
      found: partitions,
      empty: "",
      show: (rows) => partitionTable(name, rows),
    }),
    section({
      name: "Readers",
      title: "Groups that read it",
      found: groups,
      empty: "No consumer group reads it.",
      show: (rows) => groupTable("readers", rows),
    }),
    settings.show(config),
  ];
}

export const topic = {
  name: "topic",
  title: ([name]) => name,
  enter: () => settings.reset(),
  load,
  show,
};

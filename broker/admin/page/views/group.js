// One consumer group: members, offsets and lag; reading on elsewhere, deleting it.

import { button } from "../access.js";
import { get, part, put, remove } from "../api.js";
import { bar } from "../charts.js";
import { ask } from "../dialogs.js";
import { h } from "../dom.js";
import { addressOf, brokerLink, partitionLink, tags, trail } from "../links.js";
import { refresh } from "../screen.js";
import { section, table } from "../tables.js";
import { ago, count, plural, short, time } from "../words.js";
import { groupState, lagKind, seconds } from "./groups.js";

const PREVIEW_ROWS = 8;
const PLACES = [
  ["earliest", "the first record there is"],
  ["latest", "the end, skipping what is there"],
  ["timestamp", "a time"],
  ["offset", "an offset"],
];

async function load([name]) {
  return get(`/groups/${part(name)}`);
}

/** The body of a reset; null while it is not complete. */
function wish({ topic, to, time: at, offset }) {
  if (to === "timestamp") return at ? { topic, to, timestamp_ms: new Date(at).getTime() } : null;
  if (to === "offset") return offset === "" ? null : { topic, to, offset: Number(offset) };
  return { topic, to };
}

function foretold({ offsets }) {
  const moves = offsets
    .slice(0, PREVIEW_ROWS)
    .map(({ partition, before, after }) =>
      h(
        "li",
        { key: partition },
        `partition ${partition}: ${before === null ? "nothing committed" : count(before)} → `,
        h("b", {}, count(after)),
      ),
    );
  const more = offsets.length - PREVIEW_ROWS;
  return [
    h("p", {}, "It would continue from these offsets:"),
    h("ul", {}, moves),
    more > 0 && h("p", {}, `and ${more} more.`),
  ];
}

function reset(group) {
  const topics = [...new Set(group.offsets.map((one) => one.topic))];
  const path = `/groups/${part(group.group)}/offsets`;
  ask({
    title: `Where should ${group.group} continue?`,
    text: [
      "In all partitions of a topic.",
      "Nothing it has done is undone: going back means reading records again, going forward means skipping them.",
    ],
    fields: [
      topics.length > 0
        ? { name: "topic", label: "Topic", options: topics.map((one) => [one, one]) }
        : { name: "topic", label: "Topic", required: true },
      { name: "to", label: "From", options: PLACES },
      {
        name: "time",
        label: "Time",
        type: "datetime-local",
        required: true,
        when: ({ to }) => to === "timestamp",
        help: "In this browser's time zone: the first record from then on.",
      },
      {
        name: "offset",
        label: "Offset",
        type: "number",
        min: 0,
        required: true,
        when: ({ to }) => to === "offset",
        help: "Where there is no such one, the nearest.",
      },
    ],
    button: "Reset",
    preview: async (answers) => {
      const body = answers.topic && wish(answers);
      return body ? foretold(await put(path, { ...body, dry_run: true })) : null;
    },
    act: async (answers) => {
      const done = await put(path, wish(answers));
      refresh();
      return `${plural(done.offsets.length, "offset")} of ${group.group} reset.`;
    },
  });
}

function drop(group) {
  ask({
    title: `Delete group ${group.group}?`,
    text: [
      `Its ${plural(group.offsets.length, "committed offset")} go, for good.`,
      "Consumers that come back begin as new ones do.",
    ],
    button: "Delete",
    danger: true,
    act: async () => {
      await remove(`/groups/${part(group.group)}`);
      location.hash = "#/groups";
      return `Group ${group.group} is deleted.`;
    },
  });
}

function offsetsTable(rows) {
  const most = Math.max(1, ...rows.map((one) => one.lag_records ?? 0));
  const kind = (one) => lagKind(one.lag_seconds);
  return table({
    name: "offsets",
    rows,
    key: (one) => `${one.topic}/${one.partition}`,
    columns: [
      {
        head: "Partition",
        cell: (one) => partitionLink(one.topic, one.partition),
        by: (one) => `${one.topic}-${one.partition}`,
      },
      { head: "Committed", kind: "number wide", cell: (one) => count(one.committed_offset) },
      { head: "End", kind: "number wide", cell: (one) => count(one.high_watermark) },
      {
        head: "Records behind",
        kind: "number",
        cell: (one) => short(one.lag_records),
        by: (one) => one.lag_records,
      },
      { head: "", kind: "wide", cell: (one) => bar((one.lag_records ?? 0) / most, kind(one)) },
      {
        head: "Time behind",
        kind: "number",
        cell: (one) => h("span", { class: kind(one) }, seconds(one.lag_seconds)),
        by: (one) => one.lag_seconds,
      },
      {
        head: "Last commit",
        kind: "wide",
        cell: (one) => h("span", { title: time(one.committed_ms) }, ago(one.committed_ms)),
      },
    ],
  });
}

function assigned({ topic, partitions }) {
  return partitions.map((index) => ({ text: `${topic}-${index}`, href: addressOf.partition(topic, index) }));
}

function members(rows) {
  return h(
    "div",
    { class: "cards" },
    rows.map((one) =>
      h(
        "article",
        { class: "card", key: one.member_id },
        h("h3", {}, one.client_id || one.member_id),
        h(
          "p",
          { class: "address" },
          `${one.client_host.replace(/^\//, "")} · ${one.instance_id ?? one.member_id}`,
        ),
        tags(one.assignment.flatMap(assigned)),
      ),
    ),
  );
}

function behind({ lag_records, lag_seconds }) {
  if (lag_records === null) return "How far it is behind is not known. ";
  if (lag_records === 0) return "It has read everything. ";
  return `${plural(lag_records, "record")} and ${seconds(lag_seconds)} behind. `;
}

function show(group) {
  const isUsed = group.members.length > 0;
  const why = isUsed ? "Stop its consumers first: a group with members decides itself where it reads" : null;
  return [
    trail(h("a", { href: "#/groups" }, "Groups")),
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, group.group),
      groupState(group.state),
      button("reset_offsets", { onclick: () => reset(group), disabled: isUsed, title: why }, "Reset offsets"),
      button("delete_group", { class: "danger", onclick: () => drop(group), disabled: isUsed, title: why }, "Delete"),
    ),
    h(
      "p",
      { class: "lead", key: "lead" },
      behind(group),
      "Coordinated by ",
      brokerLink(group.coordinator),
      group.protocol && `, partitions divided by ${group.protocol}`,
      ".",
    ),
    section({
      name: "Offsets",
      title: "Offsets",
      found: group.offsets,
      empty: "Nothing is committed.",
      show: offsetsTable,
    }),
    section({
      name: "Members",
      title: plural(group.members.length, "member"),
      found: group.members,
      empty: "Nobody reads in this group now. Its offsets can be reset.",
      show: members,
    }),
  ];
}

export const group = { name: "group", title: ([name]) => name, load, show };

// The cluster at a glance: what needs attention, what is there, what moves, who leads.

import { get, list, Problem, tried } from "../api.js";
import { bar, rateCharts } from "../charts.js";
import { h } from "../dom.js";
import { addressOf, brokerLink, groupLink, topicLink } from "../links.js";
import { section, table } from "../tables.js";
import { bytes, count, NOTHING, perSecond, plural, rate, short, span } from "../words.js";
import { bookieState, disk } from "./bookies.js";
import { brokerState } from "./brokers.js";
import { lagKind, seconds } from "./groups.js";

const LAG_WORTH_SAYING_S = 60;
const ROWS_MAX = 5;

async function load() {
  const [cluster, rates, groups, lacking, brokers, topics, bookies] = await Promise.all([
    get("/cluster"),
    tried(get("/rates")),
    tried(list("/groups")),
    tried(get("/under-replication?limit=1000")),
    tried(list("/brokers")),
    tried(list("/topics")),
    tried(list("/bookies")),
  ]);
  const beats = rates instanceof Problem ? rates : rates.beats;
  return { cluster, beats, groups, lacking, brokers, topics, bookies };
}

/** What an operator should look at, worst first. */
function worries({ cluster, groups, lacking }) {
  const found = [];
  const say = (kind, text, href) => found.push({ kind, text, href });
  const { brokers, bookies, partitions } = cluster;
  for (const [id, why] of Object.entries(brokers.silent))
    say("bad", `Broker ${id} cannot be reached: ${why}`, "#/brokers");
  for (const id of brokers.not_ready)
    say("bad", `Broker ${id} does not serve everything it should.`, addressOf.broker(id));
  const missing = partitions.count - partitions.led;
  if (missing > 0) say("bad", `${plural(missing, "partition")} without a leader that answers.`, "#/topics");
  if (bookies.down > 0) say("bad", `${plural(bookies.down, "bookie")} down.`, "#/bookies");
  if (bookies.read_only > 0) say("warn", `${plural(bookies.read_only, "bookie")} read-only.`, "#/bookies");
  if (lacking.items?.length > 0) {
    say(
      "warn",
      `${lacking.next ? "More than " : ""}${plural(lacking.items.length, "ledger")} with too few copies.`,
      "#/bookies",
    );
  }
  for (const [path, why] of Object.entries(cluster.unreadable))
    say("bad", `${path} in ZooKeeper cannot be read by broker ${cluster.answered_by}: ${why}`, "#/brokers");
  for (const topic of Object.keys(cluster.carried))
    say("warn", `Topic ${topic} has settings of another release.`, addressOf.topic(topic));
  for (const id of brokers.unloaded)
    say("warn", `Broker ${id} is unloaded and leads nothing.`, addressOf.broker(id));
  for (const group of Array.isArray(groups) ? groups : []) {
    if (group.lag_seconds > LAG_WORTH_SAYING_S) {
      say(
        "warn",
        `Group ${group.group} is ${span(group.lag_seconds * 1000)} behind.`,
        addressOf.group(group.group),
      );
    }
  }
  return found;
}

function attention(found) {
  if (found.length === 0) {
    return h(
      "p",
      { class: "banner good", key: "attention" },
      "Everything is served, and everything has its copies.",
    );
  }
  return h(
    "ul",
    { class: "attention", key: "attention", "aria-label": "Needs attention" },
    found.map(({ kind, text, href }) => h("li", { class: kind, key: text }, h("a", { href }, text))),
  );
}

function tile(label, value, detail, href, kind = "") {
  return h(
    "a",
    { class: `tile ${kind}`, href, key: label },
    h("span", {}, label),
    h("b", {}, value),
    h("small", {}, detail),
  );
}

function tiles({ cluster, groups }) {
  const { brokers, bookies, partitions } = cluster;
  const ill = brokers.not_ready.length + Object.keys(brokers.silent).length;
  const behind = Array.isArray(groups)
    ? groups.reduce((sum, group) => sum + (group.lag_records ?? 0), 0)
    : null;
  const stored = bookies.down
    ? `${bookies.down} down`
    : bookies.read_only
      ? `${bookies.read_only} read-only`
      : "all writable";
  return h(
    "section",
    { class: "tiles", key: "tiles", "aria-label": "At a glance" },
    tile(
      "Brokers",
      count(brokers.live),
      ill ? `${ill} not ready` : "all ready",
      "#/brokers",
      ill ? "bad" : "",
    ),
    tile(
      "Bookies",
      count(bookies.writable + bookies.read_only),
      stored,
      "#/bookies",
      bookies.down ? "bad" : "",
    ),
    tile(
      "Topics",
      count(cluster.topics),
      `${plural(partitions.count, "partition")}, the brokers' own too`,
      "#/topics",
    ),
    tile(
      "Groups",
      count(cluster.groups),
      behind === null ? "lag not known" : `${short(behind)} records behind`,
      "#/groups",
    ),
  );
}

function leaders(rows) {
  const most = Math.max(1, ...rows.map((one) => one.live?.partitions_led ?? 0));
  const moved = (one, field) => (one.live?.rates ? perSecond(one.live.rates[field], bytes) : NOTHING);
  return table({
    name: "leaders",
    rows,
    key: (one) => one.broker_id,
    columns: [
      { head: "Broker", cell: (one) => brokerLink(one.broker_id) },
      { head: "State", cell: brokerState },
      {
        head: "Leads",
        cell: (one) => [bar((one.live?.partitions_led ?? 0) / most), " ", count(one.live?.partitions_led)],
      },
      { head: "In", kind: "number wide", cell: (one) => moved(one, "produced_bytes") },
      { head: "Out", kind: "number wide", cell: (one) => moved(one, "fetched_bytes") },
    ],
  });
}

function busiest(topics) {
  const rows = topics
    .map((one) => ({ ...one, rate: rate(`topic ${one.topic}`, one.totals.produced) }))
    .toSorted((one, other) => (other.rate ?? 0) - (one.rate ?? 0) || other.totals.bytes - one.totals.bytes);
  return table({
    name: "busiest",
    rows: rows.slice(0, ROWS_MAX),
    key: (one) => one.topic,
    columns: [
      { head: "Topic", cell: (one) => topicLink(one.topic) },
      { head: "Records", kind: "number wide", cell: (one) => short(one.totals.records) },
      { head: "Size", kind: "number", cell: (one) => bytes(one.totals.bytes) },
      { head: "In", kind: "number", cell: (one) => perSecond(one.rate) },
    ],
  });
}

function lagging(groups) {
  const rows = groups.toSorted(
    (one, other) =>
      (other.lag_seconds ?? 0) - (one.lag_seconds ?? 0) || (other.lag_records ?? 0) - (one.lag_records ?? 0),
  );
  return table({
    name: "lagging",
    rows: rows.slice(0, ROWS_MAX),
    key: (one) => one.group,
    columns: [
      { head: "Group", cell: (one) => groupLink(one.group) },
      { head: "Records behind", kind: "number", cell: (one) => short(one.lag_records) },
      {
        head: "Time behind",
        kind: "number",
        cell: (one) => h("span", { class: lagKind(one.lag_seconds) }, seconds(one.lag_seconds)),
      },
    ],
  });
}

function storage(rows) {
  return table({
    name: "storage",
    rows,
    key: (one) => one.bookie_id,
    columns: [
      { head: "Bookie", cell: (one) => one.bookie_id },
      { head: "State", cell: bookieState },
      { head: "Disk", kind: "wide", cell: disk },
    ],
  });
}

function show(data) {
  const all = (href) => h("a", { href }, "all");
  return [
    h("h1", { key: "title" }, "Cluster"),
    attention(worries(data)),
    tiles(data),
    rateCharts(data.beats),
    h(
      "div",
      { class: "columns", key: "columns" },
      section({
        name: "Leaders",
        title: "Who leads",
        aside: all("#/brokers"),
        found: data.brokers,
        empty: "No broker.",
        show: leaders,
      }),
      section({
        name: "Topics",
        title: "Busiest topics",
        aside: all("#/topics"),
        found: data.topics,
        empty: "There are no topics yet.",
        show: busiest,
      }),
      section({
        name: "Groups",
        title: "Groups furthest behind",
        aside: all("#/groups"),
        found: data.groups,
        empty: "No consumer group yet.",
        show: lagging,
      }),
      section({
        name: "Bookies",
        title: "Where it is stored",
        aside: all("#/bookies"),
        found: data.bookies,
        empty: "No bookie ever registered.",
        show: storage,
      }),
    ),
  ];
}

export const overview = { name: "overview", title: () => "Cluster", load, show };

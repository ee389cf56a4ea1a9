// All brokers: how each is, and giving its partitions away before maintenance.

import { button } from "../access.js";
import { list, put, remove } from "../api.js";
import { ask } from "../dialogs.js";
import { h } from "../dom.js";
import { addressOf } from "../links.js";
import { refresh } from "../screen.js";
import { ago, bytes, count, NOTHING, perSecond, plural, short } from "../words.js";

async function load() {
  return list("/brokers");
}

function unload(broker) {
  const led = broker.live?.partitions_led;
  ask({
    title: `Unload broker ${broker.broker_id}?`,
    text: [
      `${led === undefined ? "Its partitions" : `The ${plural(led, "partition")} that it leads`} go to the other brokers`,
      "within moments; clients follow by themselves.",
      "It leads nothing until it is loaded again or its process restarts.",
    ],
    button: "Unload",
    act: async () => {
      await put(`/brokers/${broker.broker_id}/unloaded`);
      refresh();
      return `Broker ${broker.broker_id} gives its partitions away.`;
    },
  });
}

function loadAgain(broker) {
  ask({
    title: `Load broker ${broker.broker_id} again?`,
    text: ["It takes its share of the partitions over from the others, within moments."],
    button: "Load",
    act: async () => {
      await remove(`/brokers/${broker.broker_id}/unloaded`);
      refresh();
      return `Broker ${broker.broker_id} takes part again.`;
    },
  });
}

export function unloadButton(broker) {
  if (broker.is_unloaded)
    return button("load_broker", { class: "main", onclick: () => loadAgain(broker) }, "Load again");
  return button("unload_broker", { onclick: () => unload(broker) }, "Unload");
}

export function brokerState(broker) {
  if (broker.live === null) return h("span", { class: "state bad", title: broker.silence }, "silent");
  if (!broker.live.is_ready)
    return h("span", { class: "state bad", title: broker.live.not_ready.join("\n") }, "not ready");
  if (broker.is_unloaded) return h("span", { class: "state warn" }, "unloaded");
  return h("span", { class: "state good" }, "ready");
}

export function numbers(broker) {
  const { live } = broker;
  const moved = (field, format) => (live?.rates ? perSecond(live.rates[field], format) : NOTHING);
  const rows = [
    ["Leads", plural(live?.partitions_led ?? null, "partition")],
    ["Opening", count(live?.partitions_opening)],
    ["Coordinates", plural(live?.groups ?? null, "group")],
    ["Connections", count(live?.connections)],
    ["Records in", moved("produced_records", short)],
    ["Bytes in", moved("produced_bytes", bytes)],
    ["Bytes out", moved("fetched_bytes", bytes)],
    ["Up since", ago(live?.started_ms)],
    ["Version", live?.version ?? NOTHING],
  ];
  return h(
    "dl",
    { class: "numbers", key: "numbers" },
    rows.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))),
  );
}

export function reasons(broker) {
  const all = broker.live?.not_ready ?? [];
  return (
    all.length > 0 &&
    h(
      "ul",
      { class: "attention", key: "reasons" },
      all.map((why) => h("li", { class: "bad", key: why }, why)),
    )
  );
}

function card(broker) {
  return h(
    "article",
    { class: "card", key: broker.broker_id },
    h(
      "h2",
      {},
      h("a", { href: addressOf.broker(broker.broker_id) }, `Broker ${broker.broker_id}`),
      brokerState(broker),
    ),
    h("p", { class: "address" }, `${broker.host}:${broker.port}`, broker.rack && ` · rack ${broker.rack}`),
    broker.silence && h("p", { class: "fault" }, broker.silence),
    reasons(broker),
    numbers(broker),
    h("p", { class: "buttons" }, unloadButton(broker)),
  );
}

function show(brokers) {
  return [
    h("h1", { key: "title" }, "Brokers"),
    h("section", { class: "cards", key: "cards", "aria-label": "Brokers" }, brokers.map(card)),
  ];
}

export const brokers = { name: "brokers", title: () => "Brokers", load, show };

// One broker: its numbers, what it leads, and the settings it runs with.

import { get, list, Problem, tried } from "../api.js";
import { rateCharts } from "../charts.js";
import { h } from "../dom.js";
import { addressOf, tags, trail } from "../links.js";
import { Settings } from "../settings.js";
import { section } from "../tables.js";
import { plural } from "../words.js";
import { brokerState, numbers, reasons, unloadButton } from "./brokers.js";

const settings = new Settings();

async function load([id]) {
  const [broker, config, rates, led] = await Promise.all([
    get(`/brokers/${id}`),
    tried(get(`/brokers/${id}/config`)),
    tried(get(`/brokers/${id}/rates`)),
    tried(list(`/brokers/${id}/topics`)),
  ]);
  return { broker, config, rates, led };
}

function ledTopics(rows) {
  return tags(
    rows.map((one) => ({ text: `${one.topic} · ${one.partitions_led}`, href: addressOf.topic(one.topic) })),
  );
}

function show({ broker, config, rates, led }) {
  const count = led instanceof Problem ? null : led.reduce((sum, one) => sum + one.partitions_led, 0);
  return [
    trail(h("a", { href: "#/brokers" }, "Brokers")),
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, `Broker ${broker.broker_id}`),
      brokerState(broker),
      unloadButton(broker),
    ),
    h(
      "p",
      { class: "lead", key: "lead" },
      `${broker.host}:${broker.port}`,
      broker.rack && ` · rack ${broker.rack}`,
      ` · incarnation ${broker.incarnation}`,
    ),
    reasons(broker),
    numbers(broker),
    rateCharts(rates instanceof Problem ? rates : rates.beats),
    section({
      name: "Leads",
      title: count === null ? "Leads" : `Leads ${plural(count, "partition")}`,
      found: led,
      empty: "Nothing.",
      show: ledTopics,
    }),
    settings.show(config),
  ];
}

export const broker = {
  name: "broker",
  title: ([id]) => `Broker ${id}`,
  enter: () => settings.reset(),
  load,
  show,
};

// Addresses within the page, and links to what has a view of its own.

import { part } from "./api.js";
import { h } from "./dom.js";

export const addressOf = {
  topic: (name) => `#/topics/${part(name)}`,
  partition: (topic, index) => `#/topics/${part(topic)}/${index}`,
  group: (name) => `#/groups/${part(name)}`,
  transaction: (name) => `#/transactions/${part(name)}`,
  broker: (id) => `#/brokers/${id}`,
};

export function topicLink(name) {
  return h("a", { href: addressOf.topic(name) }, name);
}

export function partitionLink(topic, index, text = `${topic}-${index}`) {
  return h("a", { href: addressOf.partition(topic, index) }, text);
}

export function groupLink(name) {
  return h("a", { href: addressOf.group(name) }, name);
}

export function transactionLink(name) {
  return h("a", { href: addressOf.transaction(name) }, name);
}

export function brokerLink(id) {
  return h("a", { href: addressOf.broker(id) }, `broker ${id}`);
}

/** Links in a row; `rows`: {text, href}. */
export function tags(rows) {
  return h(
    "p",
    { class: "tags" },
    rows.map(({ text, href }) => h("a", { class: "tag", href, key: text }, text)),
  );
}

/** The way to a view from the section above; `steps`: links. */
export function trail(...steps) {
  return h(
    "p",
    { class: "path", key: "path" },
    steps.map((step) => [step, " / "]),
  );
}

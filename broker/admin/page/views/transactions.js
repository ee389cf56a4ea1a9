// Transactional ids: who has a transaction open and since when; aborting one that hangs.

import { button } from "../access.js";
import { get, part, post } from "../api.js";
import { ask } from "../dialogs.js";
import { h } from "../dom.js";
import { addressOf, brokerLink, tags, trail, transactionLink } from "../links.js";
import { firstRows, listView, stateTag } from "../lists.js";
import { refresh } from "../screen.js";
import { section, table } from "../tables.js";
import { ago, count, NOTHING, plural, span } from "../words.js";

const LONG_S = 60;
const VERY_LONG_S = 300;
const STATES = {
  Empty: ["plain", "idle"],
  Ongoing: ["good", "open"],
  PrepareCommit: ["warn", "committing"],
  PrepareAbort: ["warn", "aborting"],
  CompleteCommit: ["plain", "committed"],
  CompleteAbort: ["plain", "aborted"],
};
const search = { text: "" };

function openFor({ open_seconds }) {
  if (open_seconds === null) return NOTHING;
  const kind = open_seconds < LONG_S ? "good" : open_seconds < VERY_LONG_S ? "warn" : "bad";
  return h("span", { class: kind }, span(open_seconds * 1000));
}

function clientOf({ client_id, client_host }) {
  return client_host === null ? NOTHING : `${client_id} at ${client_host}`;
}

function transactionTable(rows) {
  return table({
    name: "transactions",
    rows,
    key: (one) => one.transactional_id,
    columns: [
      {
        head: "Transactional id",
        cell: (one) => transactionLink(one.transactional_id),
        by: (one) => one.transactional_id,
      },
      { head: "State", cell: (one) => stateTag(STATES, one.state), by: (one) => one.state },
      { head: "Open for", kind: "number", cell: openFor, by: (one) => one.open_seconds ?? 0 },
      {
        head: "Partitions",
        kind: "number wide",
        cell: (one) => count(one.partition_count),
        by: (one) => one.partition_count,
      },
      { head: "Client", kind: "wide", cell: clientOf },
      {
        head: "Coordinator",
        kind: "wide",
        cell: (one) => brokerLink(one.coordinator),
        by: (one) => one.coordinator,
      },
    ],
  });
}

function show({ items, silent }) {
  return listView({
    title: "Transactions",
    what: "transactional id",
    items,
    silent,
    search,
    name: (one) => one.transactional_id,
    none: "No transactional producer has come by yet. One appears when a producer with a transactional id starts.",
    show: transactionTable,
  });
}

function abort({ transactional_id: name }) {
  ask({
    title: `Abort the transaction of ${name}?`,
    text: [
      "What it wrote is never seen by consumers that read committed records.",
      "Its producer is fenced: it gets an error that it ends with.",
    ],
    button: "Abort",
    danger: true,
    act: async () => {
      await post(`/transactions/${part(name)}/abort`, undefined);
      refresh();
      return `The transaction of ${name} is aborted.`;
    },
  });
}

function showOne(one) {
  const isOpen = one.state === "Ongoing";
  const why = isOpen ? null : "It has no open transaction";
  return [
    trail(h("a", { href: "#/transactions" }, "Transactions")),
    h(
      "div",
      { class: "head", key: "title" },
      h("h1", {}, one.transactional_id),
      stateTag(STATES, one.state),
      button("abort_transaction", { class: "danger", onclick: () => abort(one), disabled: !isOpen, title: why }, "Abort"),
    ),
    h(
      "p",
      { class: "lead", key: "lead" },
      one.started_ms === null
        ? "It has begun no transaction. "
        : `Its transaction ${count(one.number)} began ${ago(one.started_ms)}. `,
      `Producer ${one.producer_id}, epoch ${one.producer_epoch}, of ${clientOf(one)}. `,
      `Its transactions are aborted after ${span(one.timeout_ms)}. Coordinated by `,
      brokerLink(one.coordinator),
      ".",
    ),
    section({
      name: "Partitions",
      title: isOpen ? plural(one.partitions.length, "partition") : "Partitions without a marker",
      found: one.partitions,
      empty: "There are none.",
      show: (rows) =>
        tags(
          rows.map(({ topic, partition }) => ({
            text: `${topic}-${partition}`,
            href: addressOf.partition(topic, partition),
          })),
        ),
    }),
  ];
}

export const transactions = {
  name: "transactions",
  title: () => "Transactions",
  load: () => firstRows("/transactions"),
  show,
};
export const transaction = {
  name: "transaction",
  title: ([name]) => name,
  load: ([name]) => get(`/transactions/${part(name)}`),
  show: showOne,
};

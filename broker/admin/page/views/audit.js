// Who did what to the cluster, and who was not allowed to.

import { get } from "../api.js";
import { h } from "../dom.js";
import { brokerLink } from "../links.js";
import { listView } from "../lists.js";
import { table } from "../tables.js";
import { ago, count, NOTHING } from "../words.js";

const KINDS = {
  "request.changed": ["plain", "done by a client"],
  "admin.done": ["plain", "done by HTTP"],
  "request.denied": ["bad", "no right"],
  "login.refused": ["bad", "login refused"],
  "admin.refused": ["bad", "refused by HTTP"],
};
const search = { text: "" };

function kindOf({ event }) {
  const [kind, text] = KINDS[event] ?? ["plain", event];
  return h("span", { class: `state ${kind}` }, text);
}

function show({ items, silent }) {
  return listView({
    title: "Audit",
    what: "entry",
    items,
    silent,
    search,
    name: (one) => `${one.user} ${one.address} ${one.what}`,
    none: "Nobody has changed anything, or was refused, since the brokers started.",
    show: (rows) =>
      table({
        name: "audit",
        rows,
        key: (one) => `${one.broker_id} ${one.time_ms} ${one.event} ${one.user} ${one.address} ${one.what}`,
        columns: [
          { head: "When", cell: (one) => ago(one.time_ms), by: (one) => -one.time_ms },
          { head: "What happened", cell: kindOf, by: (one) => one.event },
          { head: "Who", cell: (one) => one.user || NOTHING, by: (one) => one.user },
          { head: "From", kind: "wide", cell: (one) => one.address || NOTHING, by: (one) => one.address },
          { head: "About", cell: (one) => one.what, by: (one) => one.what },
          { head: "Times", kind: "number wide", cell: (one) => count(one.count), by: (one) => one.count },
          { head: "Broker", kind: "wide", cell: (one) => brokerLink(one.broker_id), by: (one) => one.broker_id },
        ],
      }),
  });
}

export const audit = {
  name: "audit",
  title: () => "Audit",
  load: async () => {
    const { items, silent } = await get("/audit?limit=500");
    return { items: Object.assign(items, { isCut: items.length === 500 }), silent: Object.keys(silent) };
  },
  show,
};

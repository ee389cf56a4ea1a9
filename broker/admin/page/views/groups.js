// All consumer groups with their lag.

import { h } from "../dom.js";
import { brokerLink, groupLink } from "../links.js";
import { firstRows, listView, stateTag } from "../lists.js";
import { table } from "../tables.js";
import { count, NOTHING, short, span } from "../words.js";

const LATE_S = 10;
const VERY_LATE_S = 60;
const STATES = {
  Stable: ["good", "stable"],
  Empty: ["plain", "no members"],
  PreparingRebalance: ["warn", "rebalancing"],
  CompletingRebalance: ["warn", "rebalancing"],
  Assigning: ["warn", "rebalancing"],
  Reconciling: ["warn", "rebalancing"],
};
const search = { text: "" };

/** "good", "warn" or "bad": how late a group is. */
export function lagKind(lag_seconds) {
  if (lag_seconds === null || lag_seconds < LATE_S) return "good";
  return lag_seconds < VERY_LATE_S ? "warn" : "bad";
}

export function seconds(lag_seconds) {
  if (lag_seconds === null) return NOTHING;
  return lag_seconds === 0 ? "0" : span(lag_seconds * 1000);
}

export const groupState = (state) => stateTag(STATES, state);

/** A table of groups, as `/groups` lists them. */
export function groupTable(name, rows) {
  return table({
    name,
    rows,
    key: (one) => one.group,
    columns: [
      { head: "Group", cell: (one) => groupLink(one.group), by: (one) => one.group },
      { head: "State", cell: (one) => groupState(one.state) },
      { head: "Members", kind: "number wide", cell: (one) => count(one.members), by: (one) => one.members },
      {
        head: "Records behind",
        kind: "number",
        cell: (one) => short(one.lag_records),
        by: (one) => one.lag_records,
      },
      {
        head: "Time behind",
        kind: "number",
        cell: (one) => h("span", { class: lagKind(one.lag_seconds) }, seconds(one.lag_seconds)),
        by: (one) => one.lag_seconds,
      },
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
    title: "Groups",
    what: "group",
    items,
    silent,
    search,
    name: (one) => one.group,
    none: "No consumer group has come by yet. One appears when a consumer with a group id joins or commits.",
    show: (found) => groupTable("groups", found),
  });
}

export const groups = { name: "groups", title: () => "Groups", load: () => firstRows("/groups"), show };

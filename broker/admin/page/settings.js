// The settings of a broker or of a topic: those that somebody set, and all of them on demand.

import { Problem } from "./api.js";
import { h } from "./dom.js";
import { showAgain } from "./screen.js";
import { section, table } from "./tables.js";
import { NOTHING } from "./words.js";

const DEFAULT = "default";
const SOURCES = { topic: "this topic" };

/** What one view shows of settings, with what its reader looks for. */
export class Settings {
  constructor() {
    this.reset();
  }

  /** Forget what was looked for: the view shows something else now. */
  reset() {
    this.filter = "";
    this.withDefaults = false;
  }

  /** `config`: as the API lists it, or a Problem. */
  show(config) {
    const all = config instanceof Problem ? [] : config.settings;
    const isWanted = ({ source }) => this.withDefaults || this.filter !== "" || source !== DEFAULT;
    const isFound = ({ name, doc }) => name.includes(this.filter) || doc.toLowerCase().includes(this.filter);
    return section({
      name: "Settings",
      title: "Settings",
      aside: this.controls(all.length),
      found: config instanceof Problem ? config : all.filter((one) => isWanted(one) && isFound(one)),
      empty: this.filter ? "No setting has such a name." : "Every setting has its default.",
      show: settingsTable,
    });
  }

  controls(count) {
    const turn = (event) => {
      this.withDefaults = event.target.checked;
      showAgain();
    };
    const search = (event) => {
      this.filter = event.target.value.trim().toLowerCase();
      showAgain();
    };
    const box = h("input", { type: "checkbox", checked: this.withDefaults, onchange: turn });
    const find = { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" };
    return [
      h("label", { class: "check" }, box, ` all ${count}, defaults too`),
      h("input", { ...find, oninput: search }),
    ];
  }
}

function settingsTable(rows) {
  return table({
    name: "settings",
    rows,
    key: (one) => one.name,
    columns: [
      { head: "Setting", cell: nameOf, by: (one) => one.name },
      { head: "Value", kind: "value", cell: valueOf },
      { head: "From", kind: "wide", cell: sourceOf, by: (one) => one.source },
    ],
  });
}

function nameOf({ name, doc, has_effect }) {
  const why = "Kept for Kafka's tools; Quire does not act on it";
  return [
    h("code", {}, name),
    has_effect === false && h("span", { class: "tag", title: why }, "no effect"),
    h("small", {}, doc),
  ];
}

function valueOf({ value }) {
  const text = Array.isArray(value) ? value.join(", ") : String(value ?? "");
  return text === "" ? NOTHING : h("code", {}, text);
}

function sourceOf({ source }) {
  return source === DEFAULT ? DEFAULT : h("b", { class: "source" }, SOURCES[source] ?? source);
}

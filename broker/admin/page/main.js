// The frame around every view: which view an address means, the sections, the theme.

import { get, hasToken } from "./api.js";
import { dismiss } from "./dialogs.js";
import { h, render } from "./dom.js";
import { leave, liveness, open, title, whenShown } from "./screen.js";
import { audit } from "./views/audit.js";
import { bookies } from "./views/bookies.js";
import { broker } from "./views/broker.js";
import { brokers } from "./views/brokers.js";
import { group } from "./views/group.js";
import { groups } from "./views/groups.js";
import { overview } from "./views/overview.js";
import { partition } from "./views/partition.js";
import { topic } from "./views/topic.js";
import { topics } from "./views/topics.js";
import { transaction, transactions } from "./views/transactions.js";

const ROUTES = [
  [/^$/, overview],
  [/^topics$/, topics],
  [/^topics\/([^/]+)$/, topic],
  [/^topics\/([^/]+)\/(\d+)$/, partition],
  [/^groups$/, groups],
  [/^groups\/([^/]+)$/, group],
  [/^transactions$/, transactions],
  [/^transactions\/([^/]+)$/, transaction],
  [/^brokers$/, brokers],
  [/^brokers\/(\d+)$/, broker],
  [/^bookies$/, bookies],
  [/^audit$/, audit],
];
const SECTIONS = [
  ["", "Cluster"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["transactions", "Transactions"],
  ["brokers", "Brokers"],
  ["bookies", "Bookies"],
  ["audit", "Audit"],
];
const THEMES = ["auto", "light", "dark"];
const THEME_SIGNS = { auto: "◐", light: "☀", dark: "☾" };
const LIVENESS = {
  waiting: "asking",
  live: "live",
  slow: "waiting for an answer",
  locked: "token required",
  lost: "no answer",
};

let clusterId = "";

function path() {
  return location.hash.replace(/^#\/?/, "");
}

function navigate() {
  dismiss();
  for (const [pattern, view] of ROUTES) {
    const match = pattern.exec(path());
    if (match) {
      open(view, match.slice(1).map(decodeURIComponent));
      return;
    }
  }
  location.hash = "#/";
}

function showFrame() {
  const state = liveness();
  if (state === "live" && clusterId === "") nameCluster();
  document.title = `${title()} · Quire`;
  render(
    document.getElementById("top"),
    h(
      "a",
      { class: "brand", href: "#/" },
      h("img", { src: "/page/icon.svg", alt: "", width: 22, height: 22 }),
      h("b", {}, "Quire"),
      clusterId && h("span", { title: `Cluster ${clusterId}` }, clusterId.slice(0, 8)),
    ),
    h("span", { class: `pulse ${state}`, title: "Asked again every other second" }, LIVENESS[state]),
    hasToken() && h("button", { class: "plain", onclick: leave }, "Forget token"),
    h(
      "button",
      {
        class: "plain sign",
        onclick: nextTheme,
        title: `Theme: ${theme()}`,
        "aria-label": `Theme: ${theme()}`,
      },
      THEME_SIGNS[theme()],
    ),
  );
  render(
    document.getElementById("sections"),
    SECTIONS.map(([target, label]) => {
      const isHere = path().split("/")[0] === target;
      return h("a", { href: `#/${target}`, key: label, "aria-current": isHere ? "page" : null }, label);
    }),
  );
}

async function nameCluster() {
  clusterId = (await get("/cluster").catch(() => ({ cluster_id: "" }))).cluster_id;
  showFrame();
}

function theme() {
  return localStorage.getItem("quire-theme") ?? "auto";
}

function nextTheme() {
  localStorage.setItem("quire-theme", THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  applyTheme();
  showFrame();
}

function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

applyTheme();
whenShown(showFrame);
document.getElementById("skip").onclick = (event) => {
  event.preventDefault(); // the address is the view's
  document.getElementById("view").focus();
};
window.addEventListener("hashchange", () => {
  navigate();
  document.getElementById("view").focus({ preventScroll: true });
});
navigate();

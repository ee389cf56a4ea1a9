// What is on the screen: the view in use, its data, and asking for them again every other second.
//
// A view is {name, title(parts), load(parts), show(data, parts), enter?(parts)}: `load` asks the
// API, `show` describes what came. While the page is hidden, or a dialog is open, nothing is
// asked. When an answer fails to come, what is known stays, and the page says since when.

import { forget, learn } from "./access.js";
import { forgetToken, hasToken, Problem, setToken } from "./api.js";
import { h, render } from "./dom.js";
import { ago } from "./words.js";

const INTERVAL_MS = 2000;
const SLOW_MS = 2500;

let view = null;
let parts = [];
let data = null;
let failure = null;
let updatedAt = 0;
let turn = 0;
let timer = 0;
let isSlow = false;
let onShown = () => {};

/** Call `listener` after everything that was shown. */
export function whenShown(listener) {
  onShown = listener;
}

/** Show a view; `parts` are the names in its address. */
export function open(wanted, names) {
  view = wanted;
  parts = names;
  data = null;
  failure = null;
  view.enter?.(parts);
  window.scrollTo(0, 0);
  showAgain();
  refresh();
}

export function title() {
  return view.title(parts);
}

/** "waiting", "live", "slow", "locked" (a token is required) or "lost" (no answer that helps). */
export function liveness() {
  if (failure?.status === 401) return "locked";
  if (failure !== null && failure.status !== 404) return "lost";
  if (isSlow) return "slow";
  return data === null && failure === null ? "waiting" : "live";
}

/** Show again what is known, for views whose own state changed. */
export function showAgain() {
  const host = document.getElementById("view");
  host.className = `${view.name} ${failure !== null && data !== null ? "stale" : ""}`;
  host.setAttribute("aria-busy", String(data === null && failure === null));
  render(host, failure && banner(), data === null ? failure === null && waiting() : view.show(data, parts));
  onShown();
}

/** Ask for the data of the view now; a later call makes earlier answers void. */
export async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  const slow = setTimeout(() => {
    isSlow = true;
    onShown();
  }, SLOW_MS);
  try {
    await learn();
    const found = await view.load(parts);
    if (mine !== turn) return;
    data = found;
    failure = null;
    updatedAt = Date.now();
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof Problem)) throw error;
    failure = error;
    // What is gone, or not to be seen any more, must not stay on the screen.
    if ([401, 404].includes(error.status)) data = null;
  } finally {
    clearTimeout(slow);
    isSlow = false;
    if (mine === turn) timer = setTimeout(again, INTERVAL_MS);
  }
  showAgain();
}

function again() {
  const isAsking = document.querySelector("dialog[open]") !== null;
  if (document.hidden || isAsking || failure?.status === 401) timer = setTimeout(again, INTERVAL_MS);
  else refresh();
}

function waiting() {
  const bone = (kind) => h("span", { class: `bone ${kind}`, "aria-hidden": "true" });
  return h(
    "div",
    { class: "waiting", key: "waiting" },
    h("p", { class: "aside" }, "Asking the cluster…"),
    bone("title"),
    bone("block"),
    bone("block"),
  );
}

function banner() {
  if (failure.status === 401) return tokenForm();
  return h(
    "div",
    { class: "banner bad", role: "alert", key: "problem" },
    h("b", {}, failure.message),
    failure.status !== 404 && h("span", {}, failure.hint),
    data !== null && h("small", {}, `What is shown below is from ${ago(updatedAt)}. The page keeps trying.`),
  );
}

function tokenForm() {
  const submit = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    forget();
    refresh();
  };
  return h(
    "form",
    { class: "token card", onsubmit: submit, key: "token" },
    h("h1", {}, "This cluster needs a token"),
    h(
      "p",
      {},
      "It is the brokers' ",
      h("code", {}, "admin_token"),
      "; with their ",
      h("code", {}, "admin_read_token"),
      " you may look, and change nothing; a file of tokens may have more. This browser tab keeps it until you close it.",
    ),
    hasToken() && h("p", { class: "fault", role: "alert" }, "The token that you gave is wrong."),
    h(
      "div",
      { class: "field" },
      h("label", { for: "token" }, "Token"),
      h("input", {
        id: "token",
        name: "token",
        type: "password",
        autocomplete: "off",
        required: true,
        mounted: (input) => input.focus(),
      }),
    ),
    h("p", { class: "buttons" }, h("button", { class: "main" }, "Open")),
  );
}

/** Drop the token and whatever was seen with it. */
export function leave() {
  forgetToken();
  forget();
  data = null;
  refresh();
}

document.addEventListener("visibilitychange", () => !document.hidden && view !== null && refresh());

// What the reader may do: buttons of what a role may not do are grey, and say why.

import { get } from "./api.js";
import { h } from "./dom.js";

const LEARNT_FOR_MS = 30_000;

let me = null;
let learntAt = 0;

/** Ask the broker, unless that was done just now. */
export async function learn() {
  if (me !== null && Date.now() - learntAt < LEARNT_FOR_MS) return;
  me = await get("/me");
  learntAt = Date.now();
}

/** Somebody else may read now. */
export function forget() {
  me = null;
}

/** Why the reader may not use an operation of the admin API; null if that is allowed. */
export function refusal(operation) {
  const role = me?.refused[operation];
  return role ? `This needs role ${role}; you are ${me.name}, of role ${me.role}` : null;
}

/** A button for an operation: grey, with the reason, if the reader may not use it. */
export function button(operation, props, ...children) {
  const why = refusal(operation);
  if (why === null) return h("button", props, ...children);
  return h("button", { ...props, disabled: true, title: why }, ...children);
}

// Requests to the admin API. A problem document becomes a `Problem`, whose text is for people.

const PREFIX = "/admin/v1";
const TOKEN = "quire-token";
const TIMEOUT_MS = 20_000;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the broker answered ${status}`);
    this.status = status;
    this.hint = body.hint ?? "";
    this.faults = body.faults ?? [];
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}

async function send(method, path, body) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(PREFIX + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (error) {
    throw new Problem(0, {
      detail: error.name === "TimeoutError" ? "The broker does not answer." : "The broker is gone.",
      hint: "Is its process still running?",
    });
  }
  if (answer.status === 204) return null;
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, value);
  return value;
}

export const get = (path) => send("GET", path);
export const put = (path, body) => send("PUT", path, body);
export const post = (path, body) => send("POST", path, body);
export const patch = (path, body) => send("PATCH", path, body);
export const remove = (path) => send("DELETE", path);

/** All items of a list, page by page, up to `most`; `isCut` on them says that there are more. */
export async function list(path, most = 1000) {
  const items = [];
  let after = null;
  do {
    const mark = path.includes("?") ? "&" : "?";
    const next = after === null ? "" : `&after=${encodeURIComponent(after)}`;
    const page = await get(`${path}${mark}limit=${Math.min(most, 500)}${next}`);
    items.push(...page.items);
    after = page.next;
  } while (after !== null && items.length < most);
  return Object.assign(items, { isCut: after !== null });
}

/** The answer, or the `Problem` in its place, for what a view can do without. */
export function tried(promise) {
  return promise.catch((error) => {
    if (error instanceof Problem && error.status !== 401) return error;
    throw error;
  });
}

/** A part of a path. */
export const part = (name) => encodeURIComponent(name);

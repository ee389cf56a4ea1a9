// Numbers, sizes and times as people read them, and rates from totals that grow.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const MS_PER = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

export const NOTHING = "–";

export function count(value) {
  return value === null || value === undefined ? NOTHING : COUNT.format(value);
}

/** 1,234 as it is, 56,789 as 56.8K. */
export function short(value) {
  if (value === null || value === undefined) return NOTHING;
  return Math.abs(value) < 10_000 ? COUNT.format(value) : SHORT.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value < 1000) return `${COUNT.format(value)} B`;
  let size = value;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    size /= 1000;
    if (size < 1000) return `${size < 10 ? size.toFixed(1) : COUNT.format(size)} ${unit}`;
  }
  return `${COUNT.format(size / 1000)} PB`;
}

export function perSecond(value, format = short) {
  if (value === null || value === undefined) return NOTHING;
  return `${value > 0 && value < 10 && format === short ? value.toFixed(1) : format(value)}/s`;
}

/** 95 s is "1.6 min". */
export function span(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  for (const [unit, size] of MS_PER) {
    if (ms >= size) {
      const value = ms / size;
      return `${value < 10 && unit !== "s" ? value.toFixed(1) : Math.floor(value)} ${unit}`;
    }
  }
  return `${Math.round(ms)} ms`;
}

export function ago(ms) {
  if (ms === null || ms === undefined || ms < 0) return NOTHING;
  const passed = Date.now() - ms;
  return passed < 2000 ? "just now" : `${span(passed)} ago`;
}

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return NOTHING;
  return new Date(ms).toLocaleString("en", { dateStyle: "medium", timeStyle: "medium" });
}

export function plural(value, noun, nouns = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : nouns}`;
}

/** Text that is not longer than `most` characters. */
export function cut(text, most) {
  return text.length > most ? `${text.slice(0, most)} …` : text;
}

const seen = new Map();

/** Growth per second of a total since it was shown before; null the first time. */
export function rate(key, total) {
  const now = performance.now();
  const marks = (seen.get(key) ?? []).filter((mark) => now - mark.at < 8000);
  marks.push({ at: now, total });
  seen.set(key, marks);
  const first = marks[0];
  if (now - first.at < 500) return null;
  return Math.max(0, ((total - first.total) * 1000) / (now - first.at));
}

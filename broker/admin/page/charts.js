// Small drawings: a line of the last minutes, a bar of a share.

import { h } from "./dom.js";
import { NOTHING, bytes, perSecond, short } from "./words.js";

const WIDTH = 300;
const HEIGHT = 64;
const RATES = [
  ["Records in", "produced_records", short],
  ["Bytes in", "produced_bytes", bytes],
  ["Bytes out", "fetched_bytes", bytes],
  ["Requests", "requests", short],
];

/** What moved in the last minutes, as four small charts. `beats`: of `/rates`, or a Problem. */
export function rateCharts(beats) {
  const rows = Array.isArray(beats) ? beats : [];
  return h(
    "section",
    { class: "charts", key: "charts", "aria-label": "Rates of the last minutes" },
    RATES.map(([label, field, format]) =>
      chart(
        label,
        rows.map((beat) => beat[field]),
        format,
      ),
    ),
  );
}

function chart(label, points, format) {
  const now = points.length ? perSecond(points.at(-1), format) : NOTHING;
  const most = points.length ? perSecond(Math.max(...points), format) : NOTHING;
  return h(
    "figure",
    { class: "chart", key: label },
    h("figcaption", {}, h("span", {}, label), h("b", {}, now), h("small", {}, `most ${most}`)),
    line(
      points,
      `${label}: ${now} now, at most ${most} in the last ${Math.ceil(points.length / 60)} minutes`,
    ),
  );
}

/** A line with the area below it. `points`: numbers, oldest first. */
function line(points, label) {
  const most = Math.max(...points, 1e-9);
  const step = WIDTH / Math.max(1, points.length - 1);
  const places = points.map((value, index) => {
    const y = HEIGHT - 2 - (value / most) * (HEIGHT - 8);
    return `${(index * step).toFixed(1)},${y.toFixed(1)}`;
  });
  const isLine = points.length > 1;
  return h(
    "svg",
    {
      class: "line",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    isLine && h("path", { class: "area", d: `M0,${HEIGHT} L${places.join(" L")} L${WIDTH},${HEIGHT} Z` }),
    isLine && h("polyline", { points: places.join(" "), "vector-effect": "non-scaling-stroke" }),
  );
}

/** A bar filled to a share of 1; what it says stands beside it in words. */
export function bar(share, kind = "") {
  const width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(1)}%`;
  return h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, h("span", { style: { width } }));
}

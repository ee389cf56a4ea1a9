"""Draws the README's picture of speed out of the bench's summary: `python -m ops.docs.speed`.

The rows are chosen to show where Quire is far ahead of Kafka, where both are even, and where Kafka
is ahead. A test holds the drawing and the README's table to `ops/bench/results/summary.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SUMMARY: Final = Path(__file__).resolve().parent.parent / "bench" / "results" / "summary.json"
DRAWING: Final = Path(__file__).with_name("speed.svg")
PEERS: Final = ("kafka, synced", "kafka, defaults")

_CLASSES: Final = ("quire", "synced", "unsynced")
_LONGEST: Final = 340
_SHORTEST: Final = 3


class Row(NamedTuple):
    """One comparison: where it is in the summary, and what the picture says of it."""

    workload: str
    measure: str
    title: str
    about: str


ROWS: Final = (
    Row("kafka-producer-perf-test 1000 B, 6 partitions, defaults", "MB/s",
        "Kafka's own producer", "Java, defaults, 1 KB records, 6 partitions: MB/s, more is better"),
    Row("kafka-producer-perf-test 100 B, 6 partitions, defaults", "MB/s",
        "The same, 100 B records", "Java, defaults, 6 partitions: MB/s, more is better"),
    Row("kafka-consumer-perf-test 1000 B, 6 partitions", "MB/s fetching",
        "Kafka's own consumer", "Java, defaults, one consumer, 6 partitions: MB/s, more is better"),
    Row("produce 1024 B, 1 partition, 1 MB batches", "MB/s",
        "Large batches", "librdkafka, 1 KB records, batches of 1 MB: MB/s, more is better"),
    Row("produce 1024 B, 1 partition, 16 KiB batches", "MB/s",
        "One small batch in a request", "librdkafka, 1 KB records, 16 KiB: MB/s, more is better"),
    Row("latency at 50% of the slower maximum", "p99 ms",
        "End-to-end latency", "p99 at half the rate that the slowest takes: ms, less is better"),
    Row("catch-up read, 5 groups", "MB/s",
        "Five groups catching up", "3 GB from disk, all groups together: MB/s, more is better"),
    Row("kill -9 of the leader, 1 partition", "all served ms",
        "kill -9 of the leader", "until the next acknowledgement: ms, less is better"),
)  # fmt: skip

_HEAD: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 616"
  role="img" aria-labelledby="title about">
  <title id="title">Quire beside Apache Kafka</title>
  <desc id="about">The eight rows of the README's table as bars.</desc>
  <style>
    svg { --page: #ffffff; --edge: #d5dae3; --ink: #1c2430; --soft: #5b6676;
      --quire: #2563a8; --synced: #b45309; --unsynced: #e0a96d; }
    @media (prefers-color-scheme: dark) {
      svg { --page: #12161d; --edge: #343d4b; --ink: #e8ecf2; --soft: #9aa6b6;
        --quire: #7db4ee; --synced: #d98841; --unsynced: #8f6a43; }
    }
    text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
      sans-serif; font-size: 12.5px; fill: var(--soft); }
    .name { font-size: 15px; font-weight: 600; fill: var(--ink); }
    .value { font-size: 14px; font-weight: 600; fill: var(--ink); }
    .quire { fill: var(--quire); }
    .synced { fill: var(--synced); }
    .unsynced { fill: var(--unsynced); }
  </style>
  <rect x="1" y="1" width="958" height="614" rx="16" fill="var(--page)" stroke="var(--edge)"/>
  <rect class="quire" x="40" y="30" width="14" height="14" rx="3"/>
  <text x="62" y="42">Quire</text>
  <rect class="synced" x="130" y="30" width="14" height="14" rx="3"/>
  <text x="152" y="42">Kafka that syncs as Quire does</text>
  <rect class="unsynced" x="380" y="30" width="14" height="14" rx="3"/>
  <text x="402" y="42">Kafka without sync (its default)</text>
"""
_FOOT: Final = """\
  <text x="40" y="592">Three copies, acks=all, two cores for servers and load
    together; medians of one to three rounds.</text>
</svg>
"""


def figures(row: Row, summary: list[dict[str, object]]) -> list[float | None]:
    """Return a row's medians: Quire, Kafka with sync, Kafka without; None was not measured."""
    found = {
        one["peer_name"]: one
        for one in summary
        if (one["workload"], one["measure"]) == (row.workload, row.measure)
    }
    peers = [found.get(peer, {}).get("peer") for peer in PEERS]
    ours = next(iter(found.values()))["quire"]
    return [None if value is None else float(str(value)) for value in (ours, *peers)]


def written(value: float) -> str:
    """Write a figure as people read it: whole, below ten with one decimal."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def panel(row: Row, values: list[float | None], x: int, y: int) -> Iterator[str]:
    """Yield one comparison: its title, what is measured, and a bar for each system."""
    yield f'  <text class="name" x="{x}" y="{y + 16}">{row.title}</text>\n'
    yield f'  <text x="{x}" y="{y + 34}">{row.about}</text>\n'
    most = max(value for value in values if value is not None)
    top = y + 44
    for name, value in zip(_CLASSES, values, strict=True):
        if value is None:
            continue
        width = max(_SHORTEST, round(_LONGEST * value / most))
        yield f'  <rect class="{name}" x="{x}" y="{top}" width="{width}" height="16" rx="3"/>'
        yield f'<text class="value" x="{x + width + 8}" y="{top + 13}">{written(value)}</text>\n'
        top += 21


def draw(summary: list[dict[str, object]]) -> str:
    """Return the drawing: two columns of comparisons, each on a scale of its own."""
    panels = (
        "".join(panel(row, figures(row, summary), 40 + i % 2 * 460, 66 + i // 2 * 128))
        for i, row in enumerate(ROWS)
    )
    return _HEAD + "".join(panels) + _FOOT


if __name__ == "__main__":
    DRAWING.write_text(draw(json.loads(SUMMARY.read_text(encoding="utf-8"))), encoding="utf-8")
    sys.stdout.write(f"speed: {DRAWING.name}\n")

"""The page of all metrics, made from the tables in the code.

Covers `METRICS.md`: `python -m ops.monitoring.metrics_page` writes it, and a test compares it with
what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bookie import metrics as bookie_metrics
from bookie.admin import bookkeeper_metrics
from broker import metric_table
from client.autorecovery import metrics as recovery_metrics
from client.ledger import metrics as ledger_metrics
from client.node import process_metrics
from client.node.exposition import Kind, Row
from ops.schemas import metrics as schemas_metrics

DOCUMENT: Final = Path(__file__).with_name("METRICS.md")

TABLES_BEGIN: Final = "## Every program\n"
"""What stands above this line is written by hand."""


def sections() -> dict[str, tuple[str, Iterable[Row]]]:
    """Return title -> (who shows it, rows)."""
    own = [
        row
        for row in metric_table.TABLE.values()
        if row not in ledger_metrics.ROWS and row not in process_metrics.ROWS
    ]
    return {
        "Every program": (
            "Beside these, `process_*` as every Prometheus client has them (CPU, memory, files).",
            process_metrics.ROWS,
        ),
        "HTTP ports": ("Of every program that has one.", process_metrics.ADMIN_ROWS),
        "Brokers": ("", own),
        "Bookies": ("", bookie_metrics.ROWS),
        "Ledger clients": ("Brokers, and nodes of auto recovery.", ledger_metrics.ROWS),
        "Auto recovery": ("Alone, or in a bookie's process.", recovery_metrics.ROWS),
        "Schema registries": ("`quire schemas`.", schemas_metrics.ROWS),
    }


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for row in rows:
        name = row.name + ("_total" if row.kind is Kind.COUNTER else "")
        labels = ", ".join(row.labels)
        part = f" Part of `{row.parent}`." if row.parent else ""
        text = row.text if row.text.endswith(".") else f"{row.text}."
        yield f"| `{name}` | {row.kind.value} | {labels} | {text}{part} |"


def tables() -> str:
    """Return the page from `TABLES_BEGIN` on."""
    lines: list[str] = []
    for title, (note, rows) in sections().items():
        lines += [f"## {title}", "", *((note, "") if note else ()), *_lines(rows), ""]
    summaries = {**bookkeeper_metrics.LATENCIES, **bookkeeper_metrics.DURATIONS}
    lines += [
        "## Apache BookKeeper's names",
        "",
        "Bookies also show these, so that dashboards made for Apache BookKeeper work. Summaries are"
        " in milliseconds, with quantiles of the last one or two minutes, as there.",
        "",
        *("| metric | kind |", "|---|---|"),
        *(f"| `{one.name}` | {one.kind} |" for one in bookkeeper_metrics.TABLE),
        "| `bookie_ledger_dir_PATH_usage` | gauge |",
        *(f"| `{name}` | gauge |" for name in bookkeeper_metrics.RECOVERY),
        *(f"| `{name}` | summary |" for name in summaries),
        "",
    ]
    return "\n".join(lines)


def parts() -> tuple[str, str]:
    """Return what the page has above the tables, and its tables."""
    head, begin, rest = DOCUMENT.read_text(encoding="utf-8").partition(TABLES_BEGIN)
    return head, begin + rest


def main() -> int:
    """Write the tables."""
    DOCUMENT.write_text(parts()[0] + tables(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

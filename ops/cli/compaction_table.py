"""How clean the partitions of a compacted topic are: a table, and in words what is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ops.admin_api import AdminApi
from ops.cli.console import print_table, say

Row = dict[str, Any]


async def compaction_of(api: AdminApi, name: str, partition_count: int) -> list[Row]:
    """Return what the admin API says of each partition. Raises AdminError."""
    return [
        await api.get(f"/topics/{name}/partitions/{index}/compaction")
        for index in range(partition_count)
    ]


def print_compaction(name: str, found: Sequence[Row]) -> None:
    """Print the table, and why partitions are stuck that are."""
    print_table(
        ["PARTITION", "STATE", "WHY", "DIRTY", "CLEAN BELOW", "LAST CLEAN", "NEXT DUE",
         "SAVED BYTES"],
        [
            [
                row["partition"], row["state"], row["why"] or "-",
                "-" if row["dirty_percent"] is None else f"{row['dirty_percent']} %",
                row["cleaned_until"], _when(row["cleaned_ms"], "never"), next_due(row),
                row["saved_bytes"],
            ]
            for row in found
        ],
    )  # fmt: skip
    for row in found:
        if row["reason"]:
            say(f"{name}-{row['partition']} is {row['state']}: {row['reason']}")


def next_due(row: Row) -> str:
    """Return when time alone will make a partition due; how dirty it gets is not foreseen."""
    if row["why"] is not None:
        return "now"
    times = [row[key] for key in ("overdue_ms", "tombstones_ms") if row[key] is not None]
    return _when(min(times), "") if times else "-"


def _when(at_ms: int | None, never: str) -> str:
    if at_ms is None:
        return never
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

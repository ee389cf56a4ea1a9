"""What a node of auto recovery counts, and its metrics.

Marks are those of the whole cluster, so every node shows the same number: take the maximum. What
the auditor knows is shown by the node that is auditor; the others show 0.
"""

from __future__ import annotations

from typing import Final

from client.histogram import Histogram, Stopwatch, loop_time
from client.ledger import metrics as ledger_metrics
from client.node import process_metrics
from client.node.exposition import Exposition, Kind, Row, table

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_R: Final = "quire_recovery_"

_NUMBERS: Final = {
    "enabled": (_G, "1 unless an operator switched auto recovery off for the cluster."),
    "is_auditor": (_G, "1 on the node that was elected to find ledgers that lack copies."),
    "lost_bookies": (_G, "Bookies that are gone while ledgers still name them, on the auditor."),
    "under_replicated_ledgers": (_G, "Ledgers of the cluster marked as lacking copies."),
    "waiting_ledgers": (_G, "Ledgers that this node tried to repair in vain and will try again."),
    "audits": (_C, "Times that the ledgers of lost bookies were marked."),
    "checks": (_C, "Times that every ledger was compared with what its bookies hold."),
    "marked_ledgers": (_C, "Marks set by this node as auditor."),
    "repaired_ledgers": (_C, "Ledgers that this node made whole."),
    "unfinished_repairs": (_C, "Repairs after which something was still missing."),
    "failed_repairs": (_C, "Repairs that ended with an error."),
    "closed_ledgers": (_C, "Open ledgers closed because members were gone and no writer acted."),
    "read_entries": (_C, "Entries read to be copied."),
    "read_bytes": (_C, "Payload bytes of entries read to be copied."),
    "copied_entries": (_C, "Entries copied."),
    "copied_bytes": (_C, "Payload bytes copied."),
}  # fmt: skip
"""Field of `RecoveryStats` -> kind and meaning."""

REPAIR_SECONDS: Final = _R + "repair_seconds"
ROWS: Final = (
    *(Row(_R + name, kind, text) for name, (kind, text) in _NUMBERS.items()),
    Row(REPAIR_SECONDS, _H, "One attempt to repair a ledger."),
)
TABLE: Final = table(ROWS, ledger_metrics.ROWS)
"""Of a node in a bookie's process, beside what the bookie shows."""
PROGRAM_TABLE: Final = table(process_metrics.ROWS, ROWS, ledger_metrics.ROWS)
"""Of a node that runs alone."""


class RecoveryStats:
    """The numbers of one node."""

    def __init__(self, now_s: Stopwatch = loop_time) -> None:
        self.now_s = now_s
        self.enabled = True
        self.is_auditor = False
        self.lost_bookies = 0
        self.under_replicated_ledgers = 0
        self.waiting_ledgers = 0
        self.audits = 0
        self.checks = 0
        self.marked_ledgers = 0
        self.repaired_ledgers = 0
        self.unfinished_repairs = 0
        self.failed_repairs = 0
        self.closed_ledgers = 0
        self.read_entries = 0
        self.read_bytes = 0
        self.copied_entries = 0
        self.copied_bytes = 0
        self.repair_seconds = Histogram()


def provide_recovery(exposition: Exposition, stats: RecoveryStats) -> None:
    """Show a node's numbers."""
    for name in _NUMBERS:
        exposition.provide_one(_R + name, lambda name=name: getattr(stats, name))  # type: ignore[misc]
    exposition.provide_one(REPAIR_SECONDS, lambda: stats.repair_seconds)

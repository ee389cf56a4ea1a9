"""Settings of auto recovery; see `client/config.py` for how they are read."""

from __future__ import annotations

from dataclasses import dataclass

from client.config import check_ranges, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """Settings of one node of auto recovery."""

    poll_ms: int = setting(
        5_000,
        "How often to look for marked ledgers and for changed switches. Low: repairs begin sooner;"
        " high: fewer reads of the metadata store.",
        at_least=1,
    )
    lost_bookie_delay_ms: int = setting(
        0,
        "How long a single lost bookie may take to return before its ledgers are copied, unless"
        " the cluster's own setting says otherwise. Restarts one by one then copy nothing.",
        at_least=0,
    )
    start_grace_ms: int = setting(
        30_000,
        "How long a new auditor waits for bookies that it has not seen yet. A cluster that starts"
        " then copies nothing, however many of its bookies come later than the auditor.",
        at_least=0,
    )
    open_ledger_grace_ms: int = setting(
        30_000,
        "How long the writer of an open ledger gets to replace lost bookies before the ledger is"
        " recovered, which stops that writer. Too low: live writers are fenced.",
        at_least=0,
    )
    retry_min_ms: int = setting(
        5_000, "Pause before a ledger that could not be repaired is tried again.", at_least=1
    )
    retry_max_ms: int = setting(
        300_000, "Longest such pause; it doubles with each failure.", at_least=1
    )
    batch_entries: int = setting(
        10, "Entries copied at once. Too low: slow; too high: memory, and load.", at_least=1
    )
    bookie_check_interval_ms: int = setting(
        86_400_000,
        "How often the ledgers of all lost bookies are marked again; 0 never.",
        at_least=0,
    )
    ledger_check_interval_ms: int = setting(
        604_800_000,
        "How often all ledgers are compared with what their bookies hold; 0 never.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        check_ranges(self)

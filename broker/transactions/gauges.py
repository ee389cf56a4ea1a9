"""What the metrics of transactions read at each scrape; names are in `broker/metric_table.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.metrics import Metrics
from broker.transactions.core.transaction_types import STATE_NAMES, TransactionState
from broker.transactions.core.transaction_view import TransactionSummary
from broker.transactions.transactions import Transactions
from client.ids import Clock
from client.node.exposition import Samples

_COUNTED_MS: Final = 500
"""For this long a count is good for all that one scrape asks: there may be a million ids."""


class _Counted:
    """The transactional ids of a broker, counted once for each scrape."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock
        self._at_ms: int | None = None
        self._found: Sequence[TransactionSummary] = ()

    def now(self) -> Sequence[TransactionSummary]:
        """Return a count of each coordinator."""
        now_ms = self._clock.now_ms()
        if self._at_ms is None or not 0 <= now_ms - self._at_ms < _COUNTED_MS:
            self._found = [one.last_view.summary() for one in self._transactions.coordinators()]
            self._at_ms = now_ms
        return self._found


def provide_transactions(metrics: Metrics, transactions: Transactions, clock: Clock) -> None:
    """Let metrics read the transactions that a broker coordinates."""

    counted = _Counted(transactions, clock)

    def age_s(times_ms: Iterable[int | None]) -> float:
        oldest_ms = min((at_ms for at_ms in times_ms if at_ms is not None), default=None)
        return 0.0 if oldest_ms is None else max(clock.now_ms() - oldest_ms, 0) / 1000

    def states() -> Samples:
        counts = dict.fromkeys(TransactionState, 0)
        for summary in counted.now():
            for state, count in summary.state_counts.items():
                counts[state] += count
        for state in TransactionState:
            if state <= TransactionState.COMPLETE_ABORT:
                yield {"state": STATE_NAMES[state]}, counts[state]

    metrics.provide("quire_transactions", states)
    metrics.provide(
        "quire_transaction_events",
        lambda: [({"kind": name}, count) for name, count in transactions.event_counts.items()],
    )
    metrics.provide_one(
        "quire_transaction_oldest_seconds",
        lambda: age_s(one.oldest_start_ms for one in counted.now()),
    )
    metrics.provide_one(
        "quire_transaction_oldest_decision_seconds",
        lambda: age_s(one.oldest_decision_ms for one in counted.now()),
    )
    metrics.provide_one(
        "quire_transaction_markers",
        lambda: sum(one.marker_count for one in transactions.coordinators()),
    )

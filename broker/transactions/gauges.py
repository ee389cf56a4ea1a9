"""What the metrics of transactions read at each scrape; names are in `broker/metric_table.py`."""

from __future__ import annotations

from collections.abc import Iterable

from broker.metrics import Metrics
from broker.transactions.core.transaction_types import STATE_NAMES, TransactionState
from broker.transactions.core.transaction_view import TransactionSummary
from broker.transactions.transactions import Transactions
from client.ids import Clock
from client.node.exposition import Samples


def provide_transactions(metrics: Metrics, transactions: Transactions, clock: Clock) -> None:
    """Let metrics read the transactions that a broker coordinates."""

    def summaries() -> list[TransactionSummary]:
        return [one.last_view.summary() for one in transactions.coordinators()]

    def age_s(times_ms: Iterable[int | None]) -> float:
        oldest_ms = min((at_ms for at_ms in times_ms if at_ms is not None), default=None)
        return 0.0 if oldest_ms is None else max(clock.now_ms() - oldest_ms, 0) / 1000

    def states() -> Samples:
        counts = dict.fromkeys(TransactionState, 0)
        for summary in summaries():
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
        lambda: age_s(one.oldest_start_ms for one in summaries()),
    )
    metrics.provide_one(
        "quire_transaction_oldest_decision_seconds",
        lambda: age_s(one.oldest_decision_ms for one in summaries()),
    )
    metrics.provide_one(
        "quire_transaction_markers",
        lambda: sum(one.marker_count for one in transactions.coordinators()),
    )

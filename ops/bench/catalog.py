"""Every workload: on which systems it runs, what room it needs, how long a turn takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ops.bench.figures import Figure, Run, Scale
from ops.bench.peers.system import REPLICAS
from ops.bench.workloads.brokers import compaction, failover, hand_over, partitions
from ops.bench.workloads.records import (
    catch_up,
    fairness,
    fixed_rate,
    kafka_tools,
    produce,
    requests,
    secured,
    spark,
    transactions,
)
from ops.bench.workloads.records.produce_sizes import BATCHES
from ops.bench.workloads.storage import growth, hardware, ledgers

GB: Final = 1_000_000_000
_RATE_MAX: Final = 500_000_000
"""Bytes/s of all copies, over all cases of a turn; what disk space is planned by."""


SYSTEMS: Final = {
    "machine": 1, "brokers": 3, "synced brokers": 2, "unsynced brokers": 2,
    "restarting brokers": 2, "bookies": 2, "bookie": 2, "open and secured": 1,
}  # fmt: skip
"""Kinds of systems, and how many of each there are with all peers."""


class Workload(NamedTuple):
    """One row of the README's table."""

    name: str
    measure: Callable[[Any, Run], Awaitable[list[Figure]]]
    systems: str
    """One of `SYSTEMS`."""
    turn_s: float
    """About how long one system takes with the sizes of `make bench`, with starting it."""
    disk_bytes: Callable[[Scale], int]
    """The most that a turn has on disk at a time."""
    peers_in_short: bool = False
    """Whether a short run measures the peers too: where little time shows that they still run."""

    def minutes(self, rounds: int) -> float:
        """Return about how long it takes with all peers."""
        return self.turn_s * SYSTEMS[self.systems] * rounds / 60


def _as_fast_as_it_goes(spans: int) -> Callable[[Scale], int]:
    return lambda scale: round(
        spans * (scale.warm_up_s + scale.measure_s) * _RATE_MAX + _warm_up_bytes(scale)
    )


def _ledgers(scale: Scale) -> int:
    return round(4 * (scale.ledger_warm_up_s + scale.measure_s) * _RATE_MAX)


def _warm_up_bytes(scale: Scale) -> int:
    return len(BATCHES) * REPLICAS * scale.start_warm_up_bytes


def _little(scale: Scale) -> int:
    return 2 * GB


def _large_requests(scale: Scale) -> int:
    return _little(scale) + 2 * _as_fast_as_it_goes(len(scale.produce_partitions))(scale)


_ALL: Final = (
    Workload("hardware", hardware.measure, "machine", 15, _little),
    Workload("produce", produce.measure, "brokers", 180, _as_fast_as_it_goes(8), True),
    Workload("kafka-tools", kafka_tools.measure, "brokers", 140, _as_fast_as_it_goes(6)),
    Workload("fixed-rate", fixed_rate.measure, "brokers", 105, _as_fast_as_it_goes(1), True),
    Workload("fairness", fairness.measure, "synced brokers", 110, _as_fast_as_it_goes(4)),
    Workload("requests", requests.measure, "brokers", 135, _large_requests, True),
    Workload("secured", secured.measure, "open and secured", 180, _as_fast_as_it_goes(2)),
    Workload(
        "transactions", transactions.measure, "synced brokers", 170, _as_fast_as_it_goes(2)
    ),
    Workload(
        "catch-up", catch_up.measure, "synced brokers", 320,
        lambda scale: REPLICAS * scale.catch_up_bytes + GB,
    ),
    Workload(
        "spark", spark.measure, "unsynced brokers", 325,
        lambda scale: REPLICAS * len(scale.spark_values) * scale.spark_bytes + GB,
    ),
    Workload("compaction", compaction.measure, "synced brokers", 170, _little),
    Workload("ledgers", ledgers.measure, "bookies", 145, _ledgers, True),
    Workload("growth", growth.measure, "bookie", 130, growth.disk_bytes),
    Workload("partitions", partitions.measure, "unsynced brokers", 410, lambda scale: 10 * GB),
    Workload("hand-over", hand_over.measure, "restarting brokers", 180, _little),
    Workload("failover", failover.measure, "synced brokers", 65, _little, True),
)  # fmt: skip
WORKLOADS: Final[dict[str, Workload]] = {workload.name: workload for workload in _ALL}
"""In the order in which they are measured: fixed rates are shares of what `produce` found."""

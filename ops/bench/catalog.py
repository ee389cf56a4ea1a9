"""Every workload: on which systems, in how many rounds, what room and time a turn takes."""

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
    schemas,
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
    """About how long Quire takes with the sizes of `make bench`, with starting it."""
    disk_bytes: Callable[[Scale], int]
    """The most that a turn has on disk at a time."""
    peers_in_short: bool = False
    """Whether a short run measures the peers too: where little time shows that they still run."""
    rounds: int = 3
    """How many `make bench` measures: one where a turn has a hundred readings of its own, or the
    peers are far away; so that all of it fits into three hours."""
    peer_turn_s: float | None = None
    """How long a peer takes, if not about as long as Quire."""

    def round_s(self, peers: int) -> float:
        """Return about how long a round takes with so many peers."""
        peer_s = self.turn_s if self.peer_turn_s is None else self.peer_turn_s
        return self.turn_s + peer_s * peers

    def minutes(self) -> float:
        """Return about how long all rounds take with all peers."""
        return self.round_s(SYSTEMS[self.systems] - 1) * self.rounds / 60


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
    Workload("hardware", hardware.measure, "machine", 15, _little, rounds=1),
    Workload("produce", produce.measure, "brokers", 180, _as_fast_as_it_goes(8), True),
    Workload("kafka-tools", kafka_tools.measure, "brokers", 140, _as_fast_as_it_goes(6)),
    Workload("fixed-rate", fixed_rate.measure, "brokers", 130, _as_fast_as_it_goes(1), True),
    Workload("fairness", fairness.measure, "synced brokers", 110, _as_fast_as_it_goes(4)),
    Workload("requests", requests.measure, "brokers", 135, _large_requests, True),
    Workload("secured", secured.measure, "open and secured", 180, _as_fast_as_it_goes(2)),
    Workload(
        "transactions", transactions.measure, "synced brokers", 170, _as_fast_as_it_goes(2),
        rounds=1,
    ),
    Workload("schemas", schemas.measure, "synced brokers", 45, _little, rounds=1),
    Workload(
        "catch-up", catch_up.measure, "synced brokers", 200,
        lambda scale: REPLICAS * scale.catch_up_bytes + GB,
    ),
    Workload(
        "spark", spark.measure, "unsynced brokers", 325,
        lambda scale: REPLICAS * len(scale.spark_values) * scale.spark_bytes + GB, rounds=1,
    ),
    Workload("compaction", compaction.measure, "synced brokers", 170, _little, rounds=1),
    Workload("ledgers", ledgers.measure, "bookies", 145, _ledgers, True, rounds=1),
    Workload("growth", growth.measure, "bookie", 130, growth.disk_bytes, rounds=1),
    Workload(
        "partitions", partitions.measure, "unsynced brokers", 215, lambda scale: 10 * GB,
        rounds=1, peer_turn_s=100,
    ),
    Workload("hand-over", hand_over.measure, "restarting brokers", 180, _little, rounds=1),
    Workload("failover", failover.measure, "synced brokers", 65, _little, True),
)  # fmt: skip
WORKLOADS: Final[dict[str, Workload]] = {workload.name: workload for workload in _ALL}
"""In the order in which they are measured: fixed rates are shares of what `produce` found."""

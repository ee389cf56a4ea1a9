"""What a workload yields, and what it is measured with: figures, meters, the sizes of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ops.bench.page_cache import PageCache
from ops.bench.peers.system import Measurable
from ops.bench.process_cpu import cpu_s, resident_bytes_max, written_bytes


class Figure(NamedTuple):
    """One number of one round of one system. `measure` ends with its unit."""

    workload: str
    measure: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured. The fields' values here are those of `make bench`."""

    rounds: int | None = None
    """Of each workload; None: as many as its row of the catalogue says."""
    start_warm_up_s: float = 45.0
    """Of batches of each size, before the first case of a turn: JVMs compile meanwhile..."""
    start_warm_up_bytes: int = 2_000_000_000
    """...but no more bytes than that."""
    warm_up_s: float = 4.0
    """Before each case."""
    measure_s: float = 6.0
    produce_values: tuple[int, ...] = (1024, 100)
    produce_partitions: tuple[int, ...] = (1, 16)
    ready_made_values: tuple[int, ...] = (100,)
    """Of values whose batches are sent ready-made too: librdkafka is the limit with these."""
    outstanding_bytes_max: int = 32 << 20
    """Of values a producer holds; the Java producer's default (`buffer.memory`)."""
    tool_probe_bytes: int = 60_000_000
    """What Kafka's own tools write first, to find out how fast it goes."""
    tool_partitions: tuple[int, ...] = (1, 6, 24)
    """The cases of Kafka's own tools that are measured, by their number of partitions."""
    tool_measure_s: float = 8.0
    """How long the run that counts takes, then."""
    rate_shares: tuple[float, ...] = (0.1, 0.5)
    fairness_partitions: int = 100
    """Quiet ones, beside a busy one."""
    fairness_s: float = 20.0
    """How long each of their latencies is measured: p99 is of a hundred records per second."""
    transaction_records: tuple[int, ...] = (1, 10, 1_000)
    aborted_shares: tuple[float, ...] = (0.0, 0.1, 0.5)
    """Of transactions, where committed data is read."""
    connections: tuple[int, ...] = (1, 64)
    catch_up_bytes: int = 3_000_000_000
    catch_up_groups: tuple[int, ...] = (1, 5)
    tail_s: float = 7.0
    """How long the tail reader runs before the catch-up begins."""
    spark_values: tuple[int, ...] = (100, 1024)
    spark_bytes: int = 600_000_000
    """Of values in each topic that Spark reads: twice what a broker keeps in memory."""
    spark_warm_ups: int = 6
    """Readings that do not count, beside the one that counts the records; each is seconds long."""
    spark_passes: int = 3
    spark_triggers: int = 30
    compaction_bytes: int = 64_000_000
    """Of values, most of which are overwritten; at the default rate Quire needs about a minute."""
    compaction_tail_s: float = 20.0
    hand_over_partitions: tuple[int, ...] = (1, 100)
    settle_s: float = 2.0
    """How long the load goes on after each step of a hand-over, for a pause that comes later."""
    partition_counts: tuple[int, ...] = (1_000, 10_000)
    ledger_entry_bytes: tuple[int, ...] = (1024, 65_536)
    ledger_warm_up_s: float = 20.0
    """Java's client is a new process for each case."""
    ledger_in_flight_bytes: int = 2 << 20
    """Of adds that a ledger client has under way; at most `ledger_in_flight_max` of them."""
    ledger_in_flight_max: int = 1_000
    growth_bytes: tuple[int, ...] = (1_000_000_000, 5_000_000_000, 20_000_000_000)
    growth_ledgers: tuple[int, ...] = (1, 10, 100)
    growth_measured_bytes: int = 800_000_000
    """The end of each filling, whose throughput is the one at that size."""
    limit_bytes: int = 1 << 30
    """What each transfer of `hardware` carries."""
    failover_partitions: tuple[int, ...] = (1, 1_000)
    new_schemas: int = 100
    """That a schema registry compares, and as many that it registers, one after the other."""

    def in_flight(self, entry_bytes: int) -> int:
        """Return how many adds of that size a ledger client has under way."""
        return min(self.ledger_in_flight_max, self.ledger_in_flight_bytes // entry_bytes)

    @classmethod
    def short(cls) -> Self:
        """Return the sizes of `make bench-short`: everything runs, nothing is a result."""
        return cls(
            rounds=1,
            start_warm_up_s=0.3,
            start_warm_up_bytes=1_000_000,
            warm_up_s=0.3,
            ledger_warm_up_s=0.3,
            measure_s=0.7,
            produce_partitions=(1,),
            outstanding_bytes_max=256 << 10,
            tool_probe_bytes=100_000,
            tool_partitions=(6,),
            tool_measure_s=0.1,
            rate_shares=(0.1,),
            fairness_partitions=4,
            fairness_s=2.0,
            transaction_records=(1, 10),
            aborted_shares=(0.5,),
            connections=(1, 4),
            catch_up_bytes=4_000_000,
            catch_up_groups=(1,),
            tail_s=1.0,
            spark_values=(100,),
            spark_bytes=1_000_000,
            spark_warm_ups=0,
            spark_passes=1,
            spark_triggers=4,
            compaction_bytes=4_000_000,
            compaction_tail_s=1.0,
            hand_over_partitions=(2,),
            settle_s=0.5,
            partition_counts=(12,),
            ledger_entry_bytes=(1024,),
            growth_bytes=(4_000_000, 8_000_000),
            growth_ledgers=(1, 10),
            growth_measured_bytes=4_000_000,  # all of it: a sync may confirm all entries at once
            limit_bytes=16 << 20,
            failover_partitions=(1,),
            new_schemas=4,
        )


@dataclass(slots=True)
class Run:
    """What workloads share: the sizes, the maxima that fixed rates are shares of, memory."""

    scale: Scale
    maxima_per_s: dict[str, list[float]] = field(default_factory=dict)
    """Records of 1 KB per second that each system took, by its name; one value per round."""
    page_cache: PageCache = field(default_factory=lambda: PageCache(None))
    """Filled before each load, see `memory_filled`."""

    async def memory_filled(self) -> None:
        """Fill free memory: a load begins, or files were dropped."""
        await asyncio.to_thread(self.page_cache.fill)


class Spent(NamedTuple):
    """What a system's processes have used between two moments."""

    cpu_s: float
    broker_cpu_s: float
    written_bytes: int


class Meter:
    """Reads what some processes use. Begins when it is made."""

    def __init__(self, pids: Sequence[int], brokers: Iterable[int] = ()) -> None:
        """`brokers`: those of the processes that are counted by themselves too."""
        self._pids = list(pids)
        self._brokers = list(brokers)
        self._began = self._read()

    def _read(self) -> Spent:
        return Spent(cpu_s(self._pids), cpu_s(self._brokers), written_bytes(self._pids))

    def spent(self) -> Spent:
        """Return what was used since the meter was made."""
        began, now = self._began, self._read()
        return Spent(
            now.cpu_s - began.cpu_s,
            now.broker_cpu_s - began.broker_cpu_s,
            now.written_bytes - began.written_bytes,
        )


def peak_bytes(system: Measurable) -> int:
    """Return the sum of the most memory that each process of a system has had resident."""
    return sum(map(resident_bytes_max, system.pids()))


def named(workload: str, values: Mapping[str, float]) -> list[Figure]:
    """Return figures of one workload from (measure, value) pairs."""
    return [Figure(workload, measure, value) for measure, value in values.items()]

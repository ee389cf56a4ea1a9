"""From ranges to tasks: what ledgers and brokers serve, and which splits share a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from client.spark.brokers.kafka_cluster import PartitionLeader
from client.spark.options import Options
from client.spark.plan import ledger_mode
from client.spark.plan.input_partitions import plan_input_partitions
from client.spark.splits import BrokerSplit, LedgerSplit, OffsetRange, Split

RANGES = [OffsetRange("id", "t", partition, 0, 100) for partition in range(6)]


class Cluster:
    """Knows a leader of everything."""

    def leader(self, _at: object) -> PartitionLeader:
        return PartitionLeader(1, 7)


def plan(monkeypatch: pytest.MonkeyPatch, splits: Sequence[Split], **options: Any) -> list[Any]:
    monkeypatch.setattr(ledger_mode, "plan", lambda _ranges, _options: list(splits))
    settings = Options("localhost:1", read_mode="ledger", **options)
    sizes = {each.at: 100.0 for each in RANGES}
    return plan_input_partitions(Cluster(), RANGES, settings, sizes)  # type: ignore[arg-type]


def direct(partition: int, start: int, end: int) -> LedgerSplit:
    return LedgerSplit("id", "t", partition, 10 + partition, 0, 3, start, end, b"")


def through_broker(partition: int, start: int, end: int) -> BrokerSplit:
    return BrokerSplit("id", "t", partition, -1, start, end)


def test_tiny_ledger_splits_share_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [direct(0, 0, 100), direct(1, 0, 90), through_broker(1, 90, 100), direct(2, 0, 100)]
    (task,) = plan(monkeypatch, splits)
    assert list(task.parts) == splits


def test_no_more_share_than_min_partitions_leaves_over(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [direct(partition, 0, 100) for partition in range(6)]
    tasks = plan(monkeypatch, splits, partition_count_min=4)
    assert len(tasks) == 4
    assert [part for task in tasks for part in task.parts] == splits


def test_large_ledger_splits_are_tasks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [direct(0, 0, 900_000), direct(0, 900_000, 1_800_000), direct(1, 0, 50)]
    tasks = plan(monkeypatch, splits)
    assert [list(task.parts) for task in tasks] == [[split] for split in splits]

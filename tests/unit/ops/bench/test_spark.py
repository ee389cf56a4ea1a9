"""Rows about Spark: what readings become, and that each target finds its row."""

from __future__ import annotations

from typing import Any

import pytest

from ops.bench.load.spark import BROKER, LEDGERS, OFFICIAL, ONE_TASK
from ops.bench.report.summary import Measured, rows
from ops.bench.report.targets import SYNCED
from ops.bench.workloads.records.spark import Reading, _figures, _streams


def reading(seconds: float, spark: float, broker: float = 0.5, bookie: float = 0.5) -> Reading:
    return {
        "records": 1_000_000, "seconds": seconds, "spark_cpu_s": spark, "broker_cpu_s": broker,
        "bookie_cpu_s": bookie, "tasks": 4, "entries": 10_000,
    }  # fmt: skip


QUIRE = {
    ONE_TASK: reading(0.5, 0.9),
    BROKER: reading(0.4, 1.0, broker=0.25),
    LEDGERS: reading(0.2, 0.8, broker=0.001, bookie=0.1),
    OFFICIAL: reading(1.0, 1.2),
}
KAFKA = {OFFICIAL: reading(0.9, 1.1)}


def summary(value_bytes: int, quire: dict[str, Reading], kafka: dict[str, Reading]) -> list[Any]:
    return rows(
        [Measured("quire", 1, one) for one in _figures(value_bytes, quire, on_quire=True)]
        + [Measured("quire", 1, one) for one in _streams({ONE_TASK: 54}, 200 << 20, on_quire=True)]
        + [Measured(SYNCED, 1, one) for one in _figures(value_bytes, kafka, on_quire=False)]
        + [Measured(SYNCED, 1, one) for one in _streams({OFFICIAL: 30}, 1, on_quire=False)]
    )


def row(found: list[Any], workload: str, measure: str) -> Any:
    (one,) = [one for one in found if (one["workload"], one["measure"]) == (workload, measure)]
    return one


@pytest.mark.parametrize("value_bytes", [100, 1024])
def test_every_promise_has_a_row_that_is_judged(value_bytes: int) -> None:
    found = summary(value_bytes, QUIRE, KAFKA)
    assert sorted((one["workload"], one["measure"]) for one in found if one["target"]) == sorted(
        [
            (f"spark {value_bytes} B, one task", "rows/s"),
            (f"spark {value_bytes} B, as part of spark-sql-kafka on the same topic", "rows/s"),
            (f"spark {value_bytes} B, ledger mode", "tasks"),
            (f"spark {value_bytes} B, ledger mode", "rows/s as part of broker mode's"),
            (f"spark {value_bytes} B, ledger mode", "brokers' CPU in cores"),
            ("spark trigger of a quiet stream", "addBatch ms"),
            ("spark trigger of a quiet stream", "largest Python worker MB"),
        ]
    )
    assert all(one["met"] for one in found if one["target"])


def test_each_side_reads_as_its_users_do() -> None:
    found = summary(100, QUIRE, KAFKA)
    own = row(found, "spark 100 B, one task", "rows/s")
    assert (own["quire"], own["peer"], own["peer_name"]) == (2e6, 1e6 / 0.9, SYNCED)
    official = row(found, "spark 100 B, spark-sql-kafka", "Spark's CPU s per million rows")
    assert (official["quire"], official["peer"]) == (1.2, 1.1)
    same = "spark 100 B, as part of spark-sql-kafka on the same topic"
    assert row(found, same, "rows/s")["quire"] == 2
    assert row(found, same, "Spark's CPU")["quire"] == 0.75


def test_what_ledger_mode_means_for_many_executors() -> None:
    found = summary(100, QUIRE, KAFKA)
    computed = "spark 100 B, cores of Spark that one core can feed, computed"
    assert row(found, computed, "of the leader, broker mode")["quire"] == 4
    assert row(found, computed, "of a bookie, ledger mode")["quire"] == 8
    entry = row(found, "spark 100 B, ledger mode", "bookies' CPU µs per entry")
    assert entry["quire"] == pytest.approx(10)


def test_a_missed_promise_shows() -> None:
    slow = {**QUIRE, LEDGERS: reading(0.5, 0.8, broker=0.1)}
    found = summary(100, slow, {**KAFKA, OFFICIAL: reading(0.6, 1)})
    missed = [(one["workload"], one["measure"]) for one in found if one["met"] is False]
    assert missed == [
        ("spark 100 B, one task", "rows/s"),
        ("spark 100 B, ledger mode", "rows/s as part of broker mode's"),
        ("spark 100 B, ledger mode", "brokers' CPU in cores"),
    ]


def test_without_sparks_own_source_ours_stands_alone() -> None:
    alone = {way: QUIRE[way] for way in (ONE_TASK, BROKER, LEDGERS)}
    workloads = {one.workload for one in _figures(100, alone, on_quire=True)}
    assert not [name for name in workloads if "spark-sql-kafka" in name]
    assert _figures(100, {ONE_TASK: QUIRE[ONE_TASK]}, on_quire=False) == []

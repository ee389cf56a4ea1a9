"""Rows of the summary: medians, ratios, targets, and nothing left out."""

from typing import Any

import matplotlib.font_manager  # noqa: F401  (asks a program for the fonts, the first time of all)
import pytest

from ops.bench.figures import Figure
from ops.bench.report.plots import by_picture, draw, file_name
from ops.bench.report.summary import Measured, markdown, rows, spreads
from ops.bench.report.targets import ALONE, BOOKKEEPER, DEFAULTS, RULES, SYNCED, Target, target_of
from ops.bench.workloads.records.spark import label

PRODUCE = "produce 1024 B, 1 partition, 1 MB batches"


def measured(workload: str, measure: str, **systems: list[float]) -> list[Measured]:
    names = {"quire": "quire", "synced": SYNCED, "defaults": DEFAULTS}
    return [
        Measured(names[system], i, Figure(workload, measure, value))
        for system, values in systems.items()
        for i, value in enumerate(values, 1)
    ]


def row(found: list[dict[str, Any]], peer: str | None) -> dict[str, Any]:
    (one,) = [one for one in found if one["peer_name"] == peer]
    return one


def test_each_peer_gets_a_row_with_its_own_target() -> None:
    found = rows(
        measured(PRODUCE, "MB/s", quire=[30, 20, 10], synced=[9, 8, 7], defaults=[40, 40, 40])
    )
    synced = row(found, SYNCED)
    assert synced["quire"] == 20 and synced["peer"] == 8 and synced["ratio"] == 2.5
    assert (synced["target"], synced["met"]) == ("ratio >= 2", True)
    assert (synced["quire_least"], synced["quire_most"], synced["rounds"]) == (10, 30, 3)
    defaults = row(found, DEFAULTS)
    assert (defaults["ratio"], defaults["target"], defaults["met"]) == (0.5, "ratio >= 1", False)


def test_rows_have_the_fields_that_are_promised() -> None:
    (one,) = rows(measured(PRODUCE, "MB/s", quire=[1], synced=[1]))
    assert list(one)[:8] == [
        "workload", "measure", "quire", "peer", "peer_name", "ratio", "target", "met",
    ]  # fmt: skip


def test_without_a_peer_quire_stands_alone_and_a_target_on_its_value_is_judged() -> None:
    found = rows(measured("kill -9 of the leader, 1 partition", "p99 ms", quire=[400, 600, 700]))
    one = row(found, None)
    assert (one["peer"], one["ratio"], one["target"]) == (None, None, "value <= 500")
    assert one["met"] is False


def test_a_ratio_without_a_peer_is_neither_met_nor_missed() -> None:
    assert Target("ratio", ">=", 2).met(10.0, None) is None


def test_a_peer_of_zero_has_no_ratio() -> None:
    (one,) = rows(measured(PRODUCE, "CPU s per GB", quire=[1], synced=[0]))
    assert one["ratio"] is None and one["met"] is None


@pytest.mark.parametrize(
    ("workload", "measure", "peer", "expected"),
    [
        ("produce 100 B, 16 partitions, 16 KiB batches", "CPU s per GB", SYNCED, "ratio <= 0.5"),
        (
            "produce 100 B, 1 partition, 1 MB batches",
            "disk bytes per byte and replica",
            ALONE,
            None,
        ),
        (PRODUCE, "disk bytes per byte and replica", DEFAULTS, "value <= 1.1"),
        ("latency at 50% of the slower maximum", "p99 ms", SYNCED, "ratio <= 1"),
        ("latency at 50% of the slower maximum, linger.ms=1", "p99 ms", SYNCED, "value <= 5"),
        ("latency at 50% of the slower maximum, linger.ms=0", "p99 ms", SYNCED, "value <= 5"),
        ("latency at 10% of the slower maximum", "p99 ms", SYNCED, None),
        ("unbatched requests, 1 connection", "requests per CPU s", SYNCED, "ratio >= 1"),
        ("catch-up read, 5 groups", "MB/s", DEFAULTS, "ratio >= 1"),
        ("catch-up read beside a tail reader", "tail p99 during / before", ALONE, "value <= 2"),
        ("kill -9 of the leader, 1,000 partitions", "all served ms", ALONE, "value <= 1000"),
        ("kill -9 of the leader, 1,000 partitions", "p99 ms", ALONE, None),
        ("partitions, 10,000", "start until all take records s", ALONE, "value <= 20"),
        (label(100, "one task"), "rows/s", SYNCED, "ratio >= 1.5"),
        (label(1024, "spark-sql-kafka"), "rows/s", SYNCED, None),
        (label(1024, "ledger mode"), "brokers' CPU in cores", ALONE, "value <= 0.05"),
        ("spark trigger of a quiet stream", "addBatch ms", DEFAULTS, "value <= 60"),
        ("pause: planned hand-over, 1 partition", "longest pause ms", SYNCED, "value <= 200"),
        ("pause: hand-back, 1 partition", "longest pause ms", SYNCED, None),
        ("ledgers, 1 KiB entries, Java client", "MB per bookie CPU s", BOOKKEEPER, "ratio >= 1"),
        ("ledgers, 64 KiB entries, Java client", "MB per bookie CPU s", BOOKKEEPER, "ratio >= 1"),
        ("ledgers, 64 KiB entries, own client", "MB/s", BOOKKEEPER, "ratio >= 1"),
        ("ledgers, 1 KiB entries, own client", "MB/s", BOOKKEEPER, None),
        (
            "growth, 20 GB in the bookie",
            "MB/s as part of that at first",
            ALONE,
            "value >= 0.95",
        ),
    ],
)
def test_targets(workload: str, measure: str, peer: str, expected: str | None) -> None:
    found = target_of(workload, measure, peer)
    assert (None if found is None else str(found)) == expected


def test_every_rule_is_on_something_that_can_be_judged() -> None:
    assert {rule.target.on for rule in RULES} == {"ratio", "value"}
    assert not [rule for rule in RULES if rule.target.on == "ratio" and ALONE in rule.peers]


def test_limits_of_the_machine_stand_without_quire() -> None:
    limit = Measured("hardware", 1, Figure("hardware", "memory copy MB/s", 9000.0))
    (one,) = rows([limit])
    assert (one["quire"], one["peer"], one["peer_name"]) == (None, 9000.0, "hardware")
    assert (one["ratio"], one["target"], one["met"]) == (None, None, None)
    assert "| hardware | memory copy MB/s |  | hardware | 9,000 " in markdown([one])


def test_what_only_a_peer_has_is_no_row() -> None:
    assert rows(measured(PRODUCE, "MB/s", synced=[1.0])) == []


def test_the_table_shows_medians_spreads_and_misses() -> None:
    text = markdown(rows(measured(PRODUCE, "MB/s", quire=[10, 11, 12.5], synced=[1200, 1300])))
    assert text.splitlines()[2] == (
        f"| {PRODUCE} | MB/s | 11 (10–12.5) | kafka, synced | 1,250 (1,200–1,300) | 0.01 |"
        " ratio >= 2 | **no** |"
    )


def test_rows_of_one_kind_and_measure_share_a_picture(tmp_path) -> None:
    found = spreads(
        [
            *measured(PRODUCE, "MB/s", quire=[1, 2], synced=[3]),
            *measured("produce 100 B, 1 partition, 1 MB batches", "MB/s", quire=[1]),
            *measured("kill -9 of the leader, 1 partition", "p99 ms", quire=[1]),
        ]
    )
    assert [len(one) for one in by_picture(found).values()] == [2, 1]
    assert sorted(path.name for path in draw(found, tmp_path)) == [
        "kill-p99-ms.png",
        "produce-mb-s.png",
    ]
    assert all(path.stat().st_size > 0 for path in tmp_path.iterdir())


def test_file_names_have_no_blanks() -> None:
    assert file_name("latency", "p99.9 ms") == "latency-p99.9-ms.png"

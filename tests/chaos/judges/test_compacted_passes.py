"""Good passes over a compacted topic pass, and each way to break one is found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.compacted import failures
from tests.chaos.compacted_load import Pass
from tests.chaos.judges.compacted_passes import RETAIN_MS, Truth, check


def write(offset: int, key: str, value: str | None, partition: int = 0) -> dict[str, Any]:
    place = [partition, offset]
    return {"f": "write", "by": "w", "ms": offset, "place": place, "key": key, "value": value}


WRITTEN = [
    write(0, "a", "a0"),
    write(1, "b", "b1"),
    write(2, "a", "a2"),
    write(3, "b", None),
    write(4, "c", "c4"),
    write(5, "a", "a5"),
]


def one_pass(
    last: dict[str, tuple[int, str | None]], end: int = 6, began_ms: int = 0, ended_ms: int = 10
) -> dict[str, Any]:
    return {
        "f": "pass",
        "by": "r",
        "began_ms": began_ms,
        "ended_ms": ended_ms,
        "bounds": {"0": [0, end]},
        "last": {key: [0, offset, value] for key, (offset, value) in last.items()},
        "count": len(last),
        "disorder": [],
    }


def names(*passes: dict[str, Any], written: list[dict[str, Any]] | None = None) -> list[str]:
    truth = Truth(WRITTEN if written is None else written)
    return sorted(anomaly.name for anomaly in check(truth, passes))


@pytest.mark.parametrize(
    "good",
    [
        one_pass({"a": (5, "a5"), "b": (3, None), "c": (4, "c4")}),
        one_pass({"a": (5, "a5"), "c": (4, "c4")}),
        one_pass({"a": (2, "a2"), "b": (3, None), "c": (4, "c4")}, end=5),
        one_pass({"b": (3, None), "c": (4, "c4")}, end=5),
        one_pass({"a": (5, "a5"), "b": (1, "b1"), "c": (4, "c4")}, ended_ms=RETAIN_MS + 1),
    ],
    ids=["all", "deleted", "old end", "newer has come", "too slow for the deletion"],
)
def test_a_good_pass(good: dict[str, Any]) -> None:
    assert names(good) == []


def test_the_last_value_is_not_shown() -> None:
    assert names(one_pass({"a": (2, "a2"), "c": (4, "c4")})) == ["lost-value"]
    assert names(one_pass({"a": (5, "a5")})) == ["lost-value"]


def test_only_what_was_sent_before_the_pass_ended_excuses() -> None:
    shown = {"b": (3, None), "c": (4, "c4")}
    assert names(one_pass(shown, end=5, ended_ms=4)) == ["lost-value"]
    assert names(one_pass(shown, end=5, ended_ms=5)) == []


def test_a_record_that_nobody_wrote_there() -> None:
    bad = one_pass({"a": (5, "a2"), "c": (4, "c4")})
    assert names(bad) == ["invented"]


def test_a_quick_pass_is_not_shown_the_deletion() -> None:
    bad = one_pass({"a": (5, "a5"), "b": (1, "b1"), "c": (4, "c4")})
    assert names(bad) == ["undeleted"]


def test_a_key_comes_back() -> None:
    gone = one_pass({"a": (5, "a5"), "c": (4, "c4")})
    back = one_pass(
        {"a": (5, "a5"), "b": (1, "b1"), "c": (4, "c4")}, began_ms=20, ended_ms=RETAIN_MS + 30
    )
    assert names(gone, back) == ["resurrected"]
    assert names(back, gone) == ["resurrected"]


def test_offsets_go_back() -> None:
    bad = one_pass({"a": (5, "a5"), "c": (4, "c4")}) | {"disorder": ["0/3 after 4"]}
    assert names(bad) == ["disorder"]


def test_a_pass_ends_though_its_last_record_was_compacted_meanwhile() -> None:
    reading = Pass({0: (0, 10), 1: (0, 5)})
    reading.show(0, 7, "k", "v")
    reading.show(1, 4, "l", "v")
    assert reading.ended() == {1}
    reading.passed_end(0)
    assert reading.ended() == {0, 1}
    assert reading.count == 2
    assert not reading.disorder


def test_a_duplicate_stands_between_its_neighbours() -> None:
    written = [write(0, "a", "a0"), write(-1, "a", "a1"), write(-1, "b", None), write(7, "c", "c")]
    good = one_pass({"a": (3, "a1"), "c": (7, "c")}, end=8)
    assert names(good, written=written) == []
    older = one_pass({"a": (0, "a0"), "c": (7, "c")}, end=8)
    assert names(older, written=written) == ["lost-value"]
    beyond = one_pass({"a": (8, "a1"), "c": (7, "c")}, end=8)
    assert names(beyond, written=written) == ["invented"]
    assert names(one_pass({"a": (0, "a0")}, end=5), written=written) == []
    assert Truth(written).unsure_count == 0


def test_nothing_is_told_of_a_key_whose_record_may_not_be_there() -> None:
    unsure = [*WRITTEN, write(-1, "a", "a?", partition=-1)]
    assert names(one_pass({"a": (2, "a2"), "c": (4, "c4")}), written=unsure) == []
    assert Truth(unsure).unsure_count == 1


def test_a_run_fails_for_what_it_found_and_for_what_it_did_not_meet() -> None:
    good = {"anomalies": [], "faults": 9, "compaction_swapped": 9, "tracebacks": 0}
    assert failures(good, 9, 9) == []
    assert failures(good, 10, 10) == ["only 9 faults, not 10", "only 9 swaps, not 10"]
    bad = good | {"anomalies": [{"name": "invented", "text": "1"}], "tracebacks": 2}
    assert failures(bad, 0, 0) == ["invented: 1", "2 tracebacks in the logs of brokers"]

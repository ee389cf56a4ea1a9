"""What makes a run fail, and what tells that the cluster gets on."""

from __future__ import annotations

import argparse
import time
from typing import Any

import pytest

from tests.chaos.__main__ import failures
from tests.chaos.progress import Progress, Seen

GOOD: dict[str, Any] = {
    "anomalies": [],
    "faults": 60,
    "classes": 20,
    "healing": {"served_s": 4.0, "read_s": 8.0, "stall_s": 0.5},
}


def healed(**figures: float) -> dict[str, Any]:
    return GOOD | {"healing": GOOD["healing"] | figures}


def options(minutes: float = 3, faults_min: int = 50) -> argparse.Namespace:
    return argparse.Namespace(minutes=minutes, faults_min=faults_min, only=[], readable_s_max=10.0)


def test_a_good_run_passes() -> None:
    assert failures(GOOD, options()) == []
    assert failures(healed(read_s=40.0), options(minutes=30)) == []
    operated = {"administration": {"made anew": 5}, "lags": 1}
    assert failures(GOOD | operated, options()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        GOOD | {"anomalies": [{"name": "lost-write", "text": "a:1"}]},
        GOOD | {"faults": 49},
        GOOD | {"classes": 7},
        healed(served_s=10.1),
        healed(read_s=10.1),
        healed(stall_s=5.1),
        GOOD | {"administration": {"made anew": 4}},
        GOOD | {"lags": 0},
    ],
)
def test_anything_wrong_fails_it(wrong: dict[str, Any]) -> None:
    assert len(failures(wrong, options())) == 1


def test_a_run_that_never_got_to_reading_fails_by_what_went_wrong() -> None:
    report = {
        **GOOD,
        "healing": None,
        "anomalies": [{"name": "unavailable", "text": "partition 3"}],
    }
    assert failures(report, options()) == ["unavailable: partition 3"]


class Notes:
    """A producer whose notes are in a list."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[list[str]] = []

    def acknowledged(self, partition: int, sent_s_ago: float = 0.0) -> None:
        sent_ms = (time.time() - sent_s_ago) * 1000
        self.lines.append(["0", str(partition), "0", f"{sent_ms:.0f}", "1.0"])

    def lines_from(self, position: int) -> tuple[list[list[str]], int]:
        return self.lines[position:], len(self.lines)


def test_progress_names_who_has_got_nowhere_since() -> None:
    one, two = Notes("one"), Notes("two")
    progress = Progress([one, two])  # type: ignore[list-item]
    since_s = time.monotonic()
    time.sleep(0.01)
    assert len(progress.silent(since_s)) == 2 + 6
    for partition in range(5):
        one.acknowledged(partition)
    two.acknowledged(5, sent_s_ago=5.0)
    progress.look()
    assert progress.silent(since_s) == ["two", "partition 5"], "sent before, answered after"
    assert progress.count == 6
    two.acknowledged(5)
    progress.look()
    assert progress.silent(since_s) == []
    assert progress.silent_s() < 5.0
    assert progress.count == 7


def test_what_a_group_read_twice_counts_once() -> None:
    one, two = Notes("one"), Notes("two")
    seen = Seen([one, two])  # type: ignore[list-item]
    one.lines += [["0", "0", "a:0"], ["0", "1", "a:1"]]
    assert seen.look() == 2
    two.lines += [["0", "1", "a:1"], ["1", "0", "a:2"]]
    assert seen.look() == 3

"""How clean a topic is, as people see it."""

from __future__ import annotations

from typing import Any

import pytest

from ops.cli.topic_actions import next_due, print_compaction

CLEAN: dict[str, Any] = {
    "partition": 0,
    "state": "clean",
    "why": None,
    "reason": "",
    "dirty_percent": 12,
    "cleaned_until": 400,
    "cleaned_ms": 0,
    "overdue_ms": None,
    "tombstones_ms": None,
    "saved_bytes": 77,
}


def test_next_due_is_what_time_alone_decides() -> None:
    assert next_due(CLEAN) == "-"
    assert next_due({**CLEAN, "why": "dirty"}) == "now"
    later = {**CLEAN, "overdue_ms": 86_400_000, "tombstones_ms": 3_600_000}
    assert next_due(later) == "1970-01-01 01:00:00 UTC"


def test_a_row_for_each_partition_and_a_sentence_for_those_that_are_stuck(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stuck = {**CLEAN, "partition": 1, "state": "failing", "reason": "no bookie answers",
             "dirty_percent": None, "cleaned_ms": None}  # fmt: skip
    print_compaction("settings", [CLEAN, stuck])
    said = capsys.readouterr()
    head, first, second = said.out.splitlines()[:3]
    assert head.split() == [
        "PARTITION", "STATE", "WHY", "DIRTY", "CLEAN", "BELOW", "LAST", "CLEAN", "NEXT", "DUE",
        "SAVED", "BYTES",
    ]  # fmt: skip
    assert "12 %" in first
    assert "1970-01-01 00:00:00 UTC" in first
    assert "never" in second
    assert "settings-1 is failing: no bookie answers" in said.out + said.err

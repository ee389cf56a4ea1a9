"""Moments for people, also those that no calendar has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ops.amounts import utc

ROOT = Path(__file__).resolve().parents[3]


def test_moments() -> None:
    assert utc(0) == "1970-01-01 00:00:00"
    assert utc(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert utc(1_700_000_000_123, milliseconds=True) == "2023-11-14 22:13:20.123"
    assert utc(253_402_300_799_999, milliseconds=True).startswith("9999-12-31")


@pytest.mark.parametrize(
    "ms", [253_402_300_800_000, 1_700_000_000_000_000, 1 << 62, (1 << 63) - 1, -(1 << 63)]
)
def test_what_no_calendar_has(ms: int) -> None:
    assert utc(ms) == utc(ms, milliseconds=True) == f"{ms} ms"


def test_no_command_makes_dates_of_foreign_numbers_by_itself() -> None:
    own = [
        path.name
        for path in (ROOT / "ops/cli").glob("*.py")
        if re.search(r"fromtimestamp\(", path.read_text(encoding="utf-8"))
    ]
    assert own == []

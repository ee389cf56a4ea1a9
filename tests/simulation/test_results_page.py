"""The results page: rows are replaced, added, kept; and it names what exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mutants.table import PLANTS
from tests.simulation.results_page import record, rows

TEXT = (
    "# t\n\n## A\n\n| k | v |\n|---|---|\n| b | 1 |\n| z | 9 |\n\nafter\n\n## B\n\n| k |\n|---|\n"
)


def test_rows_are_replaced_and_added_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(TEXT)
    record("A", [("b", 2), ("a", "x|y")], page=page, keep=("a", "b"))
    assert "|---|---|\n| a | x\\|y |\n| b | 2 |\n\nafter\n\n## B" in page.read_text()
    record("B", [("k1",)], page=page)
    assert page.read_text().endswith("|---|\n| k1 |\n")
    with pytest.raises(ValueError, match="C"):
        record("C", [], page=page)


def test_the_page_names_existing_mutants_only() -> None:
    assert {name for name, *_ in rows("Mutants")} <= PLANTS.keys()

"""Results on disk: a file for each workload, one summary of all."""

import json
from pathlib import Path
from typing import Any

import pytest

from ops.bench.figures import Figure
from ops.bench.report import results
from ops.bench.report.results import Result
from ops.bench.report.summary import Measured

ABOUT: dict[str, Any] = {
    "command": "python -m ops.bench.compare",
    "commit": "abc",
    "is a result": True,
    "rounds wanted": 2,
    "machine": {"processor": "Fast", "cores": 2},
}


def result(workload: str, *values: float, system: str = "quire", **about: Any) -> Result:
    measured = [
        Measured(system, number, Figure(f"{workload} row", "MB/s", value))
        for number, value in enumerate(values, 1)
    ]
    return Result(workload, {**ABOUT, **about}, measured)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results.plots, "draw", lambda spreads, folder: [])


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = result("produce", 1.0, 2.0)
    results.save(tmp_path, saved)
    assert results.load(tmp_path, "produce") == saved
    assert results.load(tmp_path, "failover") == Result("failover")


def test_an_empty_result_can_be_saved(tmp_path: Path) -> None:
    results.save(tmp_path, Result("produce", {"why fewer rounds": "failed"}))
    assert results.load(tmp_path, "produce").measured == []


def test_the_summary_is_of_all_files_in_the_order_of_the_catalogue(tmp_path: Path) -> None:
    for name in ("older", "growth", "produce"):
        results.save(tmp_path, result(name, 10.0, 20.0))
    results.sum_up(tmp_path)
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert [row["workload"] for row in rows] == ["produce row", "growth row", "older row"]
    assert all(row["quire"] == 15.0 and row["is a result"] for row in rows)
    results.sum_up(tmp_path)  # the summary itself is no workload
    assert len(json.loads((tmp_path / "summary.json").read_text())) == 3


def test_measuring_a_workload_again_leaves_the_others(tmp_path: Path) -> None:
    results.save(tmp_path, result("produce", 1.0))
    results.save(tmp_path, result("growth", 2.0))
    results.save(tmp_path, result("produce", 5.0))
    results.sum_up(tmp_path)
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert [row["quire"] for row in rows] == [5.0, 2.0]


def test_the_page_says_what_is_no_result_and_how_many_rounds_there_are(tmp_path: Path) -> None:
    results.save(tmp_path, result("produce", 1.0, 2.0))
    results.save(
        tmp_path, result("growth", 2.0, **{"is a result": False, "why fewer rounds": "the budget"})
    )
    results.sum_up(tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("**Not a result**: growth.")
    assert "processor: Fast, cores: 2" in text
    assert "| produce |  | 2 | abc | `python -m ops.bench.compare` |" in text
    assert "| growth |  | 1 of 2 (the budget) | abc |" in text


def test_nothing_measured_is_an_empty_summary(tmp_path: Path) -> None:
    results.sum_up(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "summary.json").read_text()) == []

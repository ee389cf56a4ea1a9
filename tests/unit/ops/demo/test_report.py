"""The closing page: figures as measured, and a sentence that admits every fault."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from ops.demo.check import Verdict
from ops.demo.display import Display
from ops.demo.report import Report

GOOD = Verdict(
    published=1000,
    acknowledged=1000,
    received=1000,
    lost=0,
    duplicated=0,
    misplaced=0,
    out_of_order=0,
    foreign=0,
    redelivered=17,
    files=3,
    files_identical=3,
    files_different=(),
)


def make_report(verdict: Verdict = GOOD) -> Report:
    return Report(
        verdict=verdict,
        source="here",
        members=2,
        size=4_000_000,
        publish_s=2.0,
        total_s=30.0,
        killed_bookie="127.0.0.1:3183",
        killed_broker=1,
        led_by_killed=(0, 2),
        gaps_s=(0.3, 0.1, 0.5),
        failures=(),
    )


def test_measures_pauses_of_killed_and_of_others() -> None:
    report = make_report()
    assert report.without_service_s == 0.5
    assert report.other_gap_s == 0.1
    assert report.bytes_per_s == 2_000_000


def test_shows_every_figure() -> None:
    out = io.StringIO()
    Display(out).report(make_report())
    text = out.getvalue()
    for shown in ("1,000", "17", "3 of 3", "0.50 s", "0.10 s", "2.0 MB/s", "500 records/s"):
        assert shown in text
    assert "exactly once in the log and in order" in text


@pytest.mark.parametrize("fault", ["lost", "duplicated", "misplaced", "out_of_order", "foreign"])
def test_admits_every_fault(fault: str) -> None:
    report = make_report(replace(GOOD, **{fault: 3}))
    assert not report.verdict.good
    assert report.conclusion().startswith("This is NOT right: ")
    assert " 3," in report.conclusion()


def test_names_different_files_and_the_first_failure() -> None:
    verdict = replace(GOOD, files_identical=2, files_different=("a.py",))
    report = replace(make_report(verdict), failures=("no leader",))
    assert "Different: a.py." in report.conclusion()
    assert "First failure: no leader." in report.conclusion()


def test_json_has_the_judgement() -> None:
    value = json.loads(json.dumps(make_report().as_json()))
    assert value["good"] is True
    assert value["verdict"]["redelivered"] == 17
    assert value["without_service_s"] == 0.5


def test_plain_output_is_lines_without_bars() -> None:
    out = io.StringIO()
    display = Display(out)
    with display.counting(1000):
        display.count(500, 400, 300)
        display.count(600, 500, 400)  # too soon after the first
    assert "500 published, 400 acknowledged, 300 received of 1,000" in out.getvalue()
    assert out.getvalue().count("\n") == 1

"""The benchmark runs: every workload, for a moment, on a Quire of its own. No figure is judged."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT

KINDS = ("produce", "latency", "unbatched", "catch-up", "spark", "kill")
"""The first words of the rows of each workload."""


@pytest.mark.timeout(900)
async def test_every_workload_runs_and_its_rows_are_in_the_results(tmp_path: Path) -> None:
    out = tmp_path / "results"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.bench.compare", "--short", "--anyway", "--alone"),
        *("--folder", str(tmp_path / "data"), "--out", str(out)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()

    rows = json.loads((out / "summary.json").read_text())
    assert {row["workload"].split()[0] for row in rows} == set(KINDS)
    assert all(row["quire"] >= 0 and row["peer"] is None for row in rows)
    assert (out / "summary.md").read_text().endswith(printed.decode().rstrip("\n") + "\n")
    assert list(out.glob("*.png"))

    about = json.loads((out / "run.json").read_text())
    assert (about["short"], about["anyway"], about["is a result"]) == (True, True, False)
    assert about["machine"]["limits"].keys() and about["systems"].keys() == {"quire"}
    assert not list((tmp_path / "data").iterdir()), "a turn leaves nothing behind"

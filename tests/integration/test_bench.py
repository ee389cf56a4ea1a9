"""The benchmark runs: every workload, for a moment, on Quire and on the peers that are installed.

No figure is judged.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from ops.bench.catalog import WORKLOADS
from ops.bench.peers import bookkeeper, kafka
from tests.integration.cluster import ROOT

KINDS = {
    "hardware", "produce", "latency", "unbatched", "catch-up", "spark", "ledgers,", "ledgers",
    "growth,", "partitions,", "pause:", "kill", "fairness,",
    "kafka-producer-perf-test", "kafka-consumer-perf-test",
    "transactions", "the", "read", "compaction", "TLS", "registry:",
}  # fmt: skip
"""The first words of the rows of all workloads."""
PEERS = {"kafka, synced": kafka.is_installed(), "bookkeeper": bookkeeper.is_installed()}


@pytest.mark.timeout(900)
async def test_every_workload_runs_and_its_rows_are_in_the_results(tmp_path: Path) -> None:
    out = tmp_path / "results"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.bench.compare", "--short", "--anyway"),
        *("--folder", str(tmp_path / "data"), "--out", str(out)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()

    rows = json.loads((out / "summary.json").read_text())
    assert {row["workload"].split()[0] for row in rows} == KINDS
    assert all(row["quire"] is not None or row["peer_name"] == "hardware" for row in rows)
    peers = {row["peer_name"] for row in rows} - {None, "hardware"}
    assert peers == {name for name, is_installed in PEERS.items() if is_installed}
    assert (out / "summary.md").read_text().endswith(printed.decode().rstrip("\n") + "\n")
    assert list(out.glob("*.png"))

    for name in WORKLOADS:
        about = json.loads((out / f"{name}.json").read_text())["about"]
        assert (about["short"], about["anyway"], about["is a result"]) == (True, True, False)
        assert about["machine"]["limits"] and about["systems"]
    assert not list((tmp_path / "data").iterdir()), "a turn leaves nothing behind"

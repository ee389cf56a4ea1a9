"""A seed is a schedule: the same in every run, under every hash seed, with any heap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import batch

ROOT = Path(__file__).parents[2]
SEEDS = range(40, 52)


def digests(hash_seed: str) -> list[str]:
    """Run some schedules in a fresh interpreter and return their digests."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation",
            "--seeds",
            f"{SEEDS.start}..{SEEDS.stop}",
            "--digests",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_digests_are_equal_under_every_hash_seed() -> None:
    first = digests("0")
    assert len(first) == len(SEEDS)
    assert len({line.split()[1] for line in first}) == len(SEEDS)
    for hash_seed in ("1", "424242", "random"):
        assert digests(hash_seed) == first


@pytest.mark.slow
def test_a_schedule_replays_event_by_event() -> None:
    heap = [object() for _ in range(1000)]
    (first,) = batch.run(batch.Job(world="ledger", seeds=range(77, 78), log=True))
    heap.clear()
    (again,) = batch.run(batch.Job(world="ledger", seeds=range(77, 78), log=True))
    assert first.log
    assert again.log == first.log
    assert (again.digest, again.steps, again.virtual_s) == (
        first.digest,
        first.steps,
        first.virtual_s,
    )

"""A seed is a schedule: the same in every run, under every hash seed, with any heap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import batch

ROOT = Path(__file__).parents[2]
SEEDS = {
    "ledger": range(40, 52),
    "cluster": range(40, 44),
    "compaction": range(40, 44),
    "transactions": range(40, 44),
    "groups": range(40, 44),
    "shares": range(40, 44),
}


def digests(world: str, hash_seed: str) -> list[str]:
    """Run some schedules in a fresh interpreter and return their digests."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation",
            "--world",
            world,
            "--seeds",
            f"{SEEDS[world].start}..{SEEDS[world].stop}",
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
@pytest.mark.parametrize("world", SEEDS)
def test_digests_are_equal_under_every_hash_seed(world: str) -> None:
    first = digests(world, "0")
    assert len(first) == len(SEEDS[world])
    assert len({line.split(maxsplit=2)[2] for line in first}) == len(first), "digest and steps"
    for hash_seed in ("1", "424242", "random"):
        assert digests(world, hash_seed) == first


@pytest.mark.slow
@pytest.mark.parametrize("world", SEEDS)
def test_a_schedule_replays_event_by_event(world: str) -> None:
    job = batch.Job(world=world, seeds=range(77, 78), log=True)
    heap = [object() for _ in range(1000)]
    (first,) = batch.run(job)
    heap.clear()
    (again,) = batch.run(job)
    assert first.log
    assert again.log == first.log
    assert (again.digest, again.steps, again.virtual_s) == (
        first.digest,
        first.steps,
        first.virtual_s,
    )

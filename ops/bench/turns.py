"""Who is measured when: blocks of workloads, rounds of a block, turns of a round.

A turn starts one system on an empty folder, measures the block's workloads, and leaves nothing
behind. Every turn's figures are on disk as soon as it is over, so a run that was broken off goes
on where it was.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from confluent_kafka import KafkaException

from client.errors import QuireError
from ops.bench.catalog import WORKLOADS, Workload
from ops.bench.figures import Run, Scale
from ops.bench.page_cache import PageCache
from ops.bench.report import results
from ops.bench.report.results import Result
from ops.bench.report.summary import Measured
from ops.bench.systems import ALIKE_IN_SHORT, Make, systems
from ops.bench.workloads.records.fixed_rate import learn

DISK_MARGIN_BYTES: Final = 5_000_000_000
_TURN: Final = "turn-"


class Plan(NamedTuple):
    """What to measure, on what, and for how long."""

    scale: Scale
    folder: Path
    """Where systems live meanwhile."""
    out: Path
    """Where results go."""
    peers: bool
    short: bool
    resume: bool
    budget_s: float | None
    all_peers: bool = False
    """Whether a short run too measures the peers on every workload."""

    def has_peers(self, workload: Workload) -> bool:
        """Tell whether a workload is measured on the peers."""
        return self.peers and (not self.short or self.all_peers or workload.peers_in_short)


def blocks_of(chosen: Sequence[str], *, short: bool) -> list[list[Workload]]:
    """Return what is measured on one start of a system: a workload, in a short run all it can."""
    ordered = [workload for name, workload in WORKLOADS.items() if name in chosen]
    if not short:
        return [[workload] for workload in ordered]
    by_kind: dict[str, list[Workload]] = {}
    for workload in ordered:
        kind = ALIKE_IN_SHORT.get(workload.systems, workload.systems)
        by_kind.setdefault(kind, []).append(workload)
    return list(by_kind.values())


def check_disk(folder: Path, scale: Scale, workload: Workload) -> None:
    """Raise QuireError when the disk has not the room for what will be written."""
    needed = workload.disk_bytes(scale) + DISK_MARGIN_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise QuireError(
            f"{folder} has {free / 1e9:.0f} GB free and `{workload.name}` needs"
            f" {needed / 1e9:.0f} GB: name a folder on a larger disk with --folder, or leave it out"
            " with --only"
        )


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep a folder for this run alone, and delete what a killed one left in it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QuireError(f"another benchmark runs in {folder}") from None
        for left in folder.glob(f"{_TURN}*"):
            click.echo(f"bench: deleting {left}, which a killed run left", err=True)
            shutil.rmtree(left)
        yield
    finally:
        os.close(descriptor)


class Budget:
    """Shares time out among blocks: each gets what is left by its part of what is expected."""

    def __init__(self, budget_s: float | None, expected_s: Sequence[float]) -> None:
        self._end_s = None if budget_s is None else time.monotonic() + budget_s
        self._expected_s = list(expected_s)
        self._block_end_s: float | None = None

    def begin(self) -> None:
        """The next block begins."""
        total_s = sum(self._expected_s)
        mine_s = self._expected_s.pop(0)
        if self._end_s is not None:
            left_s = max(0.0, self._end_s - time.monotonic())
            self._block_end_s = time.monotonic() + left_s * (mine_s / total_s if total_s else 1.0)

    def allows(self, round_s: float) -> bool:
        """Tell whether one more round of that length fits into the block's share."""
        return self._block_end_s is None or time.monotonic() + round_s <= self._block_end_s


class Turns:
    """Gives each system its turn and keeps what it measured."""

    def __init__(
        self, plan: Plan, about: dict[str, Any], page_cache: PageCache | None = None
    ) -> None:
        """`about`: what holds for all workloads of this run; `page_cache`: filled before loads."""
        self._plan = plan
        self._about = about
        self._run = Run(plan.scale, page_cache=page_cache or PageCache(None))
        learn(self._run, results.load(plan.out, "produce").measured)

    async def take(self, blocks: Sequence[Sequence[Workload]]) -> list[str]:
        """Measure blocks one after the other; return what failed.

        A failure ends its block, not the run: the other blocks' hours are not lost.
        """
        expected_s = [self._expected_s(block) for block in blocks]
        budget = Budget(self._plan.budget_s, expected_s)
        failures = []
        for block in blocks:
            budget.begin()
            kept = {workload.name: self._begin(workload) for workload in block}
            try:
                await self._block(block, kept, budget)
            except (QuireError, KafkaException, OSError) as error:
                failures.append(f"{', '.join(kept)}: {error}")
                click.echo(f"bench: failed: {failures[-1]}", err=True)
                self._cut_short(kept, f"failed: {error}".partition("\n")[0])
        return failures

    def _cut_short(self, kept: Mapping[str, Result], why: str) -> None:
        for result in kept.values():
            result.about["why fewer rounds"] = why
            results.save(self._plan.out, result)

    def _shares(self, block: Sequence[Workload]) -> list[tuple[str, Make, list[Workload]]]:
        """Return the systems in the order of their turns, and what of a block each measures."""
        kind, short = block[0].systems, self._plan.short
        alone = systems(kind, peers=False, short=short)
        with_peers = [workload for workload in block if self._plan.has_peers(workload)]
        makers = systems(kind, peers=bool(with_peers), short=short)
        return [
            (name, make, list(block) if name in alone else with_peers)
            for name, make in makers.items()
        ]

    def _expected_s(self, block: Sequence[Workload]) -> float:
        shares = [workload for _, _, share in self._shares(block) for workload in share]
        round_s = sum(workload.round_s(shares.count(workload) - 1) for workload in block)
        return round_s * self._rounds(block)

    def _rounds(self, block: Sequence[Workload]) -> int:
        return self._plan.scale.rounds or max(workload.rounds for workload in block)

    async def _block(
        self, block: Sequence[Workload], kept: dict[str, Result], budget: Budget
    ) -> None:
        rounds = self._rounds(block)
        longest_s = 0.0
        for number in range(1, rounds + 1):
            if number > 1 and not budget.allows(longest_s):
                self._cut_short(kept, "the time budget")
                click.echo(f"bench: the budget allows {number - 1} of {rounds} rounds", err=True)
                return
            began_s = time.monotonic()
            for name, make, share in self._shares(block):
                names = [workload.name for workload in share]
                if all(kept[workload].has(name, number) for workload in names):
                    continue
                told = f"{', '.join(names)}, round {number} of {rounds}: {name}"
                click.echo(f"bench: {told}", err=True)
                await self._turn(share, kept, number, make)
            longest_s = max(longest_s, time.monotonic() - began_s)

    def _begin(self, workload: Workload) -> Result:
        """Return an empty result, or in a resumed run what is there of the same code."""
        fresh = Result(workload.name, {**self._about, "rounds wanted": self._rounds([workload])})
        if self._plan.resume:
            there = results.load(self._plan.out, workload.name)
            if all(there.about.get(key) == self._about[key] for key in ("commit", "short")):
                fresh.measured = there.measured
                fresh.about["is a result"] &= there.about["is a result"]
                fresh.about["systems"] = there.about.get("systems", {})
        return fresh

    async def _turn(
        self, block: Sequence[Workload], kept: dict[str, Result], number: int, make: Make
    ) -> None:
        for workload in block:
            check_disk(self._plan.folder, self._plan.scale, workload)
        folder = Path(tempfile.mkdtemp(prefix=_TURN, dir=self._plan.folder))
        system = make(folder / "data")
        name = system.about.name
        await self._run.memory_filled()
        try:
            await system.start()
            for workload in block:
                began_s = time.monotonic()
                figures = await workload.measure(system, self._run)
                took_s = time.monotonic() - began_s
                click.echo(f"bench:   {workload.name} took {took_s:.0f} s", err=True)
                result = kept[workload.name]
                result.measured = [
                    one for one in result.measured if (one.system, one.round) != (name, number)
                ] + [Measured(name, number, figure) for figure in figures]
                result.about.setdefault("systems", {})[name] = {
                    "durability": system.about.durability,
                    "settings": dict(system.settings()),
                }
                result.about.setdefault("turns s", {}).setdefault(name, []).append(round(took_s))
                if workload.name == "produce":
                    learn(self._run, result.measured)
                results.save(self._plan.out, result)
        finally:
            await system.stop()
            await asyncio.to_thread(shutil.rmtree, folder)

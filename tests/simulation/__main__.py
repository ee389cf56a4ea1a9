"""Runs schedules by seed, prints progress, and says how to replay what fails.

    python -m tests.simulation --seeds 0..20000 --world ledger --jobs 2
    python -m tests.simulation --count 20000 --jobs 2           as many seeds, from the clock
    python -m tests.simulation --minutes 60 --jobs 2            as long, seeds from the clock
    python -m tests.simulation --seeds 4711 --log               every event of one schedule
    python -m tests.simulation --seeds 0..200 --digests         one digest per seed, nothing else
    python -m tests.simulation --seeds 0..9999 --mutant NAME    with a planted defect

Each failing schedule is run twice; one that does not fail the same way again is reported as a
defect of the simulator.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from typing import TYPE_CHECKING

from tests.simulation import batch
from tests.simulation.result import Result, add_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 25
_TASKS_PER_CHILD = 4


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--world", choices=sorted(batch.WORLDS), default="ledger")
    parser.add_argument("--seeds", default="", help="A..B (B excluded) or one seed")
    parser.add_argument("--count", type=int, default=0, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this long")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mutant", default="", help="plant this defect first")
    parser.add_argument("--log", action="store_true", help="print every event")
    parser.add_argument("--digests", action="store_true", help="print one digest per seed")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a violation")
    return parser.parse_args(arguments)


def _seeds(options: argparse.Namespace) -> range:
    if not options.seeds:
        start = int(time.time()) * 10_000
        return range(start, start + (options.count or 1_000_000_000))
    first, _, last = options.seeds.partition("..")
    return range(int(first), int(last) if last else int(first) + 1)


def _chunks(options: argparse.Namespace) -> Iterator[batch.Job]:
    seeds = _seeds(options)
    chunk = max(1, min(_CHUNK, len(seeds) // max(1, options.jobs)))
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    for start in range(seeds.start, seeds.stop, chunk):
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield batch.Job(
            world=options.world,
            seeds=range(start, min(start + chunk, seeds.stop)),
            mutant=options.mutant,
            log=options.log,
            collect=options.jobs <= 1,
        )


def _results(options: argparse.Namespace) -> Iterator[Result]:
    jobs = _chunks(options)
    if options.jobs <= 1:
        for job in jobs:
            yield from batch.run(job)
        return
    with multiprocessing.get_context("fork").Pool(
        options.jobs, maxtasksperchild=_TASKS_PER_CHILD
    ) as pool:
        pending = []
        for job in jobs:
            pending.append(pool.apply_async(batch.run, (job,)))
            while len(pending) >= 2 * options.jobs:
                yield from pending.pop(0).get()
        for answer in pending:
            yield from answer.get()


class Report:
    """Totals of a run and its progress line."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._start_s = time.monotonic()
        self._said_s = self._start_s
        self.schedules = 0
        self.violations: list[Result] = []
        self._cpu_s = 0.0
        self._virtual_s = 0.0
        self._steps = 0
        self._faults: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def add(self, result: Result) -> None:
        """Take one result in; print what must be printed at once."""
        self.schedules += 1
        self._cpu_s += result.cpu_s
        self._virtual_s += result.virtual_s
        self._steps += result.steps
        add_counts(self._faults, result.faults)
        add_counts(self._counts, result.counts)
        if self._options.digests:
            print(result.seed, f"{result.digest:08x}", result.steps)
        if result.log is not None:
            print("\n".join(result.log))
        if result.violation:
            self.violations.append(result)
            self._say_violation(result)
        if time.monotonic() - self._said_s > 10 and not self._options.digests:
            self._said_s = time.monotonic()
            print(f"  ... {self._line()}", flush=True)

    def _say_violation(self, result: Result) -> None:
        again = batch.run(
            batch.Job(
                world=self._options.world,
                mutant=self._options.mutant,
                seeds=range(result.seed, result.seed + 1),
            )
        )[0]
        mutant = f" --mutant {self._options.mutant!r}" if self._options.mutant else ""
        print(f"VIOLATION seed {result.seed}: {result.violation}")
        print(result.detail)
        if again.violation != result.violation:
            print(f"  NOT REPRODUCED: the second run said {again.violation!r}")
        print(
            f"  replay: python -m tests.simulation --world {self._options.world}"
            f" --seeds {result.seed} --log{mutant}",
            flush=True,
        )

    def _line(self) -> str:
        wall_s = time.monotonic() - self._start_s
        return (
            f"{self.schedules} schedules, {len(self.violations)} violations,"
            f" {self.schedules / max(self._cpu_s, 1e-9):.0f} schedules per CPU second,"
            f" {self._steps / max(self._cpu_s, 1e-9) / 1000:.0f} k events per CPU second,"
            f" {self._virtual_s / max(self._cpu_s, 1e-9):.0f} x real time, {wall_s:.0f} s"
        )

    def say_totals(self) -> None:
        """Print the summary."""
        print(self._line())
        for title, table in (("faults", self._faults), ("events", self._counts)):
            words = ", ".join(f"{name} {count}" for name, count in sorted(table.items()))
            print(f"  {title}: {words}")


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code is 1 if anything was violated."""
    options = _parse(arguments)
    report = Report(options)
    for result in _results(options):
        report.add(result)
        if report.violations and not options.keep_going:
            break
    if not options.digests:
        report.say_totals()
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs schedules by seed, prints progress, and says how to replay what fails.

    python -m tests.simulation --world ledger --seeds 0..20000 --jobs 2
    python -m tests.simulation --world cluster --count 1500     as many seeds, from the clock
    python -m tests.simulation --minutes 60 --jobs 2            as long, all worlds in turn
    python -m tests.simulation --world ledger --seeds 4711 --log       every event of a schedule
    python -m tests.simulation --world ledger --seeds 0..200 --digests one digest per seed
    python -m tests.simulation --world ledger --seeds 0..9999 --mutant NAME  a planted defect

Worlds: `ledger` is bookies and ledger clients, `cluster` all of it up to Kafka clients,
`compaction` a compacted partition, `transactions` their coordinators and partitions, `groups`
brokers and a group of the consumer protocol, and `shares` brokers and share groups, all four over
scripted ledgers. Each failing schedule
is run twice; one that does not fail the same way again is reported as a defect of the simulator.
"""

from __future__ import annotations

import argparse
import difflib
import multiprocessing
import re
import sys
import time
from typing import TYPE_CHECKING, cast

from tests.simulation import batch, coverage, results_page
from tests.simulation.mutants import table as mutants
from tests.simulation.result import Result, add_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNKS = {
    "ledger": 25,
    "cluster": 5,
    "compaction": 20,
    "transactions": 20,
    "groups": 20,
    "shares": 20,
}
"""Seeds of one job, by world: about as much work in each."""
_TASKS_PER_CHILD = 4


def _seed_range(text: str) -> range:
    """Return the seeds that the command line names."""
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither one seed, as 813, nor a range, as 0..1500 (1500 is not in it)"
        )
    first = int(found[1])
    seeds = range(first, first + 1 if found[2] is None else int(found[2]))
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} holds no seed: its end is not in it")
    return seeds


def _mutant(text: str) -> str:
    """Return the name of a defect that there is; none is the default."""
    if text and text not in mutants.PLANTS:
        near = difflib.get_close_matches(text, mutants.PLANTS)
        advice = (
            f"similar are {', '.join(near)}" if near else "PLANTS in mutants.py has their names"
        )
        raise argparse.ArgumentTypeError(f"there is no mutant {text!r}: {advice}")
    return text


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--world", choices=sorted(batch.WORLDS), help="default: all in turn")
    parser.add_argument("--seeds", type=_seed_range, help="A..B (B excluded) or one seed")
    parser.add_argument("--count", type=int, default=0, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this long")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mutant", type=_mutant, default="", help="plant this defect first")
    parser.add_argument("--log", action="store_true", help="print every event")
    parser.add_argument("--digests", action="store_true", help="print one digest per seed")
    parser.add_argument("--record", default="", help="add a row of this name to RESULTS.md")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a violation")
    return parser.parse_args(arguments)


def _seeds(options: argparse.Namespace) -> range:
    if options.seeds is not None:
        return cast(range, options.seeds)
    start = int(time.time()) * 10_000
    return range(start, start + (options.count or 1_000_000_000))


def _chunks(options: argparse.Namespace) -> Iterator[batch.Job]:
    worlds = [options.world] if options.world else sorted(batch.WORLDS)
    seeds = _seeds(options)
    left = dict.fromkeys(worlds, seeds)
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    while any(left.values()):
        for world in worlds:
            if deadline is not None and time.monotonic() >= deadline:
                if options.seeds is not None:
                    rest = ", ".join(f"{w} {left[w].start}..{left[w].stop}" for w in worlds)
                    print(f"time is up after {options.minutes:g} min, not run: {rest}", flush=True)
                return
            chunk = max(1, min(_CHUNKS[world], len(seeds) // max(1, options.jobs)))
            now, left[world] = left[world][:chunk], left[world][chunk:]
            if now:
                yield batch.Job(
                    world=world,
                    seeds=now,
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
        options.jobs, batch.keep_quiet, maxtasksperchild=_TASKS_PER_CHILD
    ) as pool:
        pending = []
        for job in jobs:
            pending.append(pool.apply_async(batch.run, (job,)))
            while len(pending) >= 2 * options.jobs:
                yield from pending.pop(0).get()
        for answer in pending:
            yield from answer.get()


class Totals:
    """What the schedules of one world came to."""

    def __init__(self) -> None:
        self.schedules = 0
        self.idle = 0
        """Further ones, that ended before the workload had begun: they prove nothing."""
        self.violations = 0
        self.cpu_s = 0.0
        self.virtual_s = 0.0
        self.healed_s = 0.0
        self.steps = 0
        self.faults: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def add(self, result: Result) -> None:
        """Take one result in."""
        self.idle += (is_idle := coverage.is_idle(result))
        self.schedules += not is_idle
        self.violations += bool(result.violation)
        self.cpu_s += result.cpu_s
        self.virtual_s += result.virtual_s
        self.healed_s = max(self.healed_s, result.healed_s)
        self.steps += result.steps
        add_counts(self.faults, result.faults)
        add_counts(self.counts, result.counts)

    def __str__(self) -> str:
        cpu_s = max(self.cpu_s, 1e-9)
        return (
            f"{self.schedules} schedules and {self.idle} idle ones, {self.violations} violations,"
            f" {self.cpu_s:.0f} CPU seconds, {self.schedules / cpu_s:.0f} schedules and"
            f" {self.steps / cpu_s / 1000:.0f} k events per CPU second,"
            f" {self.virtual_s:.0f} s simulated ({self.virtual_s / cpu_s:.0f} x real time),"
            f" well again after at most {self.healed_s:.1f} s"
        )


class Report:
    """Totals of a run and its progress line."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._start_s = time.monotonic()
        self._said_s = self._start_s
        self._totals: dict[str, Totals] = {}
        self.violations: list[Result] = []

    def add(self, result: Result) -> None:
        """Take one result in; print what must be printed at once."""
        self._totals.setdefault(result.world, Totals()).add(result)
        if self._options.digests:
            print(result.world, result.seed, f"{result.digest:08x}", result.steps)
        if result.log is not None:
            print("\n".join(result.log))
        if result.violation:
            self.violations.append(result)
            self._say_violation(result)
        if time.monotonic() - self._said_s > 10 and not self._options.digests:
            self._said_s = time.monotonic()
            for world, totals in sorted(self._totals.items()):
                print(f"  ... {self._wall_s():.0f} s, {world}: {totals}", flush=True)

    def _say_violation(self, result: Result) -> None:
        job = batch.Job(
            world=result.world,
            mutant=self._options.mutant,
            seeds=range(result.seed, result.seed + 1),
        )
        # In a process of its own: meanwhile others may be forked from this one, and must not find
        # the clocks and loops of a schedule in it.
        with multiprocessing.get_context("fork").Pool(1, batch.keep_quiet) as pool:
            again = pool.apply(batch.run, (job,))[0]
        mutant = f" --mutant {self._options.mutant!r}" if self._options.mutant else ""
        print(f"VIOLATION in {result.world} seed {result.seed}: {result.violation}")
        print(result.detail)
        if again.violation != result.violation:
            print(f"  NOT REPRODUCED: the second run said {again.violation!r}")
        print(
            f"  replay: python -m tests.simulation --world {result.world}"
            f" --seeds {result.seed} --log{mutant}",
            flush=True,
        )

    def _wall_s(self) -> float:
        return time.monotonic() - self._start_s

    def record(self, name: str) -> None:
        """Write the totals into RESULTS.md."""
        rows = [
            (
                name,
                world,
                time.strftime("%Y-%m-%d"),
                totals.schedules,
                totals.violations,
                f"{totals.cpu_s:.0f}",
                f"{totals.virtual_s:.0f}",
                totals.steps,
                sum(totals.faults.values()),
            )
            for world, totals in self._totals.items()
        ]
        results_page.record("Runs", rows, key_cells=2)

    def say_totals(self) -> None:
        """Print the summary."""
        for world, totals in sorted(self._totals.items()):
            print(f"{world}: {totals}, {self._wall_s():.0f} s in all")
            for title, table in (("faults", totals.faults), ("events", totals.counts)):
                words = ", ".join(f"{name} {count}" for name, count in sorted(table.items()))
                print(f"  {title}: {words}")

    def say_missing(self) -> bool:
        """Say what the schedules should have met and did not; whether there is such a thing."""
        found = [
            f"{world}: {text}"
            for world, totals in sorted(self._totals.items())
            for text in coverage.missing(world, totals.schedules, totals.faults, totals.counts)
        ]
        for text in found:
            print(f"TOO LITTLE in {text}")
        return bool(found)


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code is 1 if anything was violated, or if a long run met too little."""
    options = _parse(arguments)
    report = Report(options)
    for result in _results(options):
        report.add(result)
        if report.violations and not options.keep_going:
            break
    if not options.digests:
        report.say_totals()
    is_meaningful = bool(options.mutant) or not report.say_missing()
    if options.record:
        report.record(options.record)
    return 0 if is_meaningful and not report.violations else 1


if __name__ == "__main__":
    sys.exit(main())

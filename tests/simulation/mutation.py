"""Plants every defect of `mutants/table.py` in turn and runs schedules until the oracle finds it.

    python -m tests.simulation.mutation --jobs 2                 the whole table
    python -m tests.simulation.mutation --only reads-do-not-fence
    python -m tests.simulation.mutation --record                 the table of RESULTS.md, too

Prints one line per mutant: how many schedules it took, their CPU time, the invariant. Exit code 1
if one stays hidden. Those that took longest last time go first, so that no process waits for
another at the end. The seed that RESULTS.md names for a mutant is tried before all others, since
most changes of the code leave its schedule as it was; `--record` and `--first-seed` count from the
first seed on, so that the table says how soon a defect would be met.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation import batch, results_page
from tests.simulation.bookies import swarm
from tests.simulation.clusters import swarm as cluster_swarm
from tests.simulation.groups import plan as group_plan
from tests.simulation.mutants import follower, read_only, secured
from tests.simulation.mutants.table import PLANTS, planted
from tests.simulation.shares import plan as share_plan
from tests.simulation.transactions import plan as transaction_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 20
NEARBY, NEARBY_TRANSACTIONS = follower.KIND, follower.OF_TRANSACTIONS
_KIND_OF = {
    "ledger": swarm.kind_of,
    "cluster": cluster_swarm.kind_of,
    "transactions": transaction_plan.kind_of,
    "groups": group_plan.kind_of,
    "shares": share_plan.kind_of,
}


class Finding(NamedTuple):
    """How one mutant fared."""

    name: str
    schedules: int
    cpu_s: float
    violation: str
    """Empty if nothing was found."""
    seed: int
    problem: str = ""


class Task(NamedTuple):
    """One mutant to hunt."""

    name: str
    first_seed: int
    schedules_max: int
    known_seed: int | None = None
    """Which to try first: the one that found it the last time."""


def hunt(task: Task) -> Finding:
    """Run schedules with a planted defect until one violates an invariant."""
    start_s = time.process_time()
    done = 0
    try:
        with planted(task.name):
            pass
    except KeyError as error:
        return Finding(task.name, 0, 0.0, "", -1, f"cannot be planted, there is no {error}")
    mutant = PLANTS[task.name]
    seeds: Iterator[int] = itertools.count(task.first_seed)
    if mutant.kind == secured.KIND:
        seeds = filter(cluster_swarm.is_secured, seeds)
    elif mutant.kind == read_only.KIND:
        seeds = filter(cluster_swarm.has_full_bookies, seeds)
    elif mutant.kind == NEARBY:
        seeds = filter(cluster_swarm.has_nearby, seeds)
    elif mutant.kind == NEARBY_TRANSACTIONS:
        seeds = (
            seed
            for seed in seeds
            if cluster_swarm.kind_of(seed) == "transactions" and cluster_swarm.has_nearby(seed)
        )
    elif mutant.kind:
        kind_of = _KIND_OF[mutant.world]
        seeds = (seed for seed in seeds if kind_of(seed) == mutant.kind)
    if task.known_seed is not None:
        seeds = itertools.chain([task.known_seed], seeds)
    while done < task.schedules_max:
        job = batch.Job(
            world=mutant.world,
            seeds=list(itertools.islice(seeds, min(_CHUNK, task.schedules_max - done))),
            mutant=task.name,
            stop_at_violation=True,
        )
        for result in batch.run(job):
            done += 1
            if result.violation:
                cpu_s = time.process_time() - start_s
                if _is_of_the_plant(result.violation):
                    return Finding(task.name, done, cpu_s, "", -1, f"no fit: {result.violation}")
                return Finding(task.name, done, cpu_s, result.violation, result.seed)
    return Finding(task.name, done, time.process_time() - start_s, "", -1)


def _is_of_the_plant(violation: str) -> bool:
    """Say whether the planted function itself was called wrongly, which finds no defect.

    So it is where what it stands for has other parameters by now.
    """
    return "TypeError(" in violation and ".<locals>." in violation


def _record(finding: Finding) -> None:
    mutant = PLANTS[finding.name]
    what = finding.violation.partition(":")[0]
    results_page.record(
        "Mutants",
        [
            (
                finding.name,
                mutant.where,
                " ".join(mutant.what.split()),
                finding.schedules,
                f"{finding.cpu_s:.1f}",
                finding.seed,
                what if len(what) < 40 else what.partition(" ")[0],
            )
        ],
        keep=PLANTS,
    )


def main(arguments: list[str] | None = None) -> int:
    """Hunt all mutants, or those named."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutation")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(PLANTS))
    parser.add_argument("--first-seed", type=int)
    parser.add_argument("--schedules-max", type=int, default=10_000)
    parser.add_argument("--record", action="store_true", help="write the table of RESULTS.md")
    options = parser.parse_args(arguments)
    took_s: dict[str, float] = {}
    known: dict[str, int] = {}
    for name, _, _, _, cpu_s, seed, *_ in results_page.rows("Mutants"):
        took_s[name], known[name] = float(cpu_s), int(seed)
    if options.record or options.first_seed is not None:
        known.clear()
    names = sorted(options.only, key=lambda name: -took_s.get(name, float("inf")))
    tasks = [
        Task(name, options.first_seed or 0, options.schedules_max, known.get(name))
        for name in names
    ]
    hidden, schedules, all_cpu_s, start_s = 0, 0, 0.0, time.monotonic()
    print(f"{'mutant':28} {'schedules':>9} {'CPU s':>7}  found by")
    with multiprocessing.get_context("fork").Pool(
        options.jobs, batch.keep_quiet, maxtasksperchild=1
    ) as pool:
        for finding in pool.imap_unordered(hunt, tasks):
            hidden += not finding.violation
            schedules += finding.schedules
            all_cpu_s += finding.cpu_s
            what = finding.violation[:90] or finding.problem or "NOT FOUND"
            if finding.violation and options.record:
                _record(finding)
            print(
                f"{finding.name:28} {finding.schedules:9} {finding.cpu_s:7.1f}  {what}", flush=True
            )
    print(
        f"{len(tasks) - hidden} of {len(tasks)} mutants found, {schedules} schedules,"
        f" {all_cpu_s:.0f} CPU seconds, {time.monotonic() - start_s:.0f} s in all"
    )
    return 1 if hidden else 0


if __name__ == "__main__":
    sys.exit(main())

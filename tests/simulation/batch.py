"""Runs a batch of schedules in this process, with everything around them kept deterministic.

The garbage collector is off inside a schedule, because a collection would run destructors at a
moment that depends on memory; it runs between schedules, or not at all in a process that soon
ends: it takes a fifth of the time. Tripwires are armed, warnings of coroutines that a simulated
crash left behind are silenced.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.clusters import world as cluster_world
from tests.simulation.compaction import world as compaction_world
from tests.simulation.groups import world as group_world
from tests.simulation.ledgers import world as ledger_world
from tests.simulation.mutants import table as mutants
from tests.simulation.shares import world as share_world
from tests.simulation.transactions import world as transaction_world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.result import Result

WORLDS: dict[str, Callable[..., Result]] = {
    "ledger": ledger_world.run_schedule,
    "cluster": cluster_world.run_schedule,
    "offload": cluster_world.run_offloaded,
    "compaction": compaction_world.run_schedule,
    "transactions": transaction_world.run_schedule,
    "groups": group_world.run_schedule,
    "shares": share_world.run_schedule,
}
_COLLECT_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Schedules to run in one go."""

    world: str
    seeds: Sequence[int]
    mutant: str = ""
    log: bool = False
    stop_at_violation: bool = False
    collect: bool = True
    """Free memory between schedules; without it, the collector stays off in this process."""


def keep_quiet() -> None:
    """Silence what dead coroutines say when they are collected, for the rest of this process."""
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def run_clean(job: Job) -> dict[str, int]:
    """Run schedules, none of which may break a rule; return what they have met, all together."""
    results = run(job)
    assert [(r.seed, r.violation) for r in results if r.violation] == []
    total: dict[str, int] = {}
    for result in results:
        for name, count in {**result.counts, **result.faults}.items():
            total[name] = total.get(name, 0) + count
    return total


def run(job: Job) -> list[Result]:
    """Run the schedules of a job in order and return what each came to."""
    run_schedule = WORLDS[job.world]
    results = []
    hook, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    logging.disable(logging.NOTSET if job.log else logging.CRITICAL)
    gc.disable()
    if job.collect:
        gc.collect()  # what destructors of the last job left would be frozen, and so stay for ever
    gc.freeze()
    try:
        with warnings.catch_warnings(), mutants.planted(job.mutant):
            warnings.simplefilter("ignore")
            for number, seed in enumerate(job.seeds):
                start_s = time.process_time()
                result = run_schedule(seed, log=job.log)
                result.world = job.world
                result.cpu_s = time.process_time() - start_s
                results.append(result)
                if result.violation and job.stop_at_violation:
                    break
                if job.collect and number % _COLLECT_EVERY == _COLLECT_EVERY - 1:
                    gc.collect()
            if job.collect:
                gc.collect()
    finally:
        if job.collect:
            gc.unfreeze()
            gc.enable()
        logging.disable(disabled)
        sys.unraisablehook = hook
    return results

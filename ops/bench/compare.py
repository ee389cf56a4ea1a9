"""Quire, Apache Kafka and Apache BookKeeper side by side: `make bench`, and `make bench-short`.

    python -m ops.bench.compare
    python -m ops.bench.compare --only produce --only fixed-rate --budget-minutes 60
    python -m ops.bench.compare --short --anyway

One system runs at a time. Each workload is measured in rounds, and each round gives every system
its turn, fresh and empty: Quire, Kafka, Quire, Kafka. How it measures is in `ops/bench/README.md`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from client.errors import QuireError
from ops.bench import machine
from ops.bench.catalog import WORKLOADS
from ops.bench.figures import Scale
from ops.bench.page_cache import PageCache
from ops.bench.report import results
from ops.bench.systems import missing
from ops.bench.turns import Plan, Turns, blocks_of, check_disk, claimed

RESULTS: Final = Path(__file__).parent / "results"
_JVM_OPTIONS: Final = "JDK_JAVA_OPTIONS"
"""The variable of the environment that every Java launcher adds to its command line."""
_SHORT_JVM: Final = "-XX:TieredStopAtLevel=1"
"""For JVMs of a short run: they end before better compiled code has paid."""


def check(chosen: Sequence[str], plan: Plan, *, quiet: bool, anyway: bool) -> None:
    """Raise QuireError for whatever would spoil the run, before anything is started."""
    if not quiet and not anyway:
        raise QuireError(
            f"the load average is {os.getloadavg()[0]:.1f}, and above {machine.LOAD_MAX:g} nothing"
            " is a result: wait until the machine is idle, or measure with --anyway, which is"
            " recorded"
        )
    for name in chosen:
        check_disk(plan.folder, plan.scale, WORKLOADS[name])
    lacking = missing([WORKLOADS[name].systems for name in chosen])
    if plan.peers and not plan.short and lacking:
        raise QuireError(
            f"{' and '.join(lacking)} are not there: run `make bench`, which fetches them, or give"
            " --alone"
        )
    has_maxima = (results.path_of(plan.out, "produce")).exists()
    if "fixed-rate" in chosen and "produce" not in chosen and not has_maxima:
        raise QuireError(
            f"`fixed-rate` takes shares of what `produce` found, and {plan.out} has nothing of it:"
            " measure `produce` too"
        )


def measure(chosen: Sequence[str], plan: Plan, *, anyway: bool) -> list[str]:
    """Measure; return what failed. Raises QuireError when nothing can be measured."""
    quiet = machine.is_quiet(os.getloadavg()[0])
    without = [name for name in chosen if plan.peers and not plan.has_peers(WORKLOADS[name])]
    if without:
        told = f"the short run measures {', '.join(without)} without peers (--all-peers: with them)"
        click.echo(f"bench: {told}", err=True)
    with claimed(plan.folder):
        check(chosen, plan, quiet=quiet, anyway=anyway)
        about: dict[str, Any] = {
            "command": shlex.join(["python", "-m", "ops.bench.compare", *sys.argv[1:]]),
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "commit": machine.commit(),
            "is a result": quiet and not plan.short,
            "anyway": anyway,
            "short": plan.short,
            "machine": machine.facts(plan.folder),
        }
        with closing(PageCache(None if plan.short else plan.folder)) as page_cache:
            turns = Turns(plan, about, page_cache)
            return asyncio.run(turns.take(blocks_of(chosen, short=plan.short)))


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option(
    "--only", "chosen", multiple=True, type=click.Choice(list(WORKLOADS)),
    help="Measure this workload; may be given more than once.  [default: all]",
)  # fmt: skip
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="Rounds of each workload.  [default: three, or one: see README.md]",
)
@click.option(
    "--budget-minutes", type=click.FloatRange(min=0, min_open=True),
    help="Measure fewer rounds, but at least one, to finish in about this time.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue with the results of the same commit.")
@click.option("--sum-up", is_flag=True, help="Measure nothing: summarize the results that exist.")
@click.option(
    "--short", is_flag=True, help="A moment of each workload, only to check that it runs."
)
@click.option("--alone", is_flag=True, help="Measure Quire without its peers.")
@click.option(
    "--all-peers",
    is_flag=True,
    help="With --short: peers on every workload, not on the quick ones.",
)
@click.option("--anyway", is_flag=True, help="Measure on a busy machine; the output says so.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("data/bench"),
    show_default=True, help="Where the systems keep their data meanwhile: on the disk to measure.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
    help="Where the results go.  [default: ops/bench/results]",
)  # fmt: skip
def main(
    chosen: tuple[str, ...],
    rounds: int | None,
    budget_minutes: float | None,
    resume: bool,
    sum_up: bool,
    short: bool,
    alone: bool,
    all_peers: bool,
    anyway: bool,
    folder: Path,
    out: Path,
) -> None:
    """Measure, and write the results."""
    logging.basicConfig(level=logging.ERROR)  # systems that are stopped break connections
    scale = Scale.short() if short else Scale(rounds=rounds)
    if short:
        os.environ[_JVM_OPTIONS] = f"{os.environ.get(_JVM_OPTIONS, '')} {_SHORT_JVM}".strip()
    budget_s = None if budget_minutes is None else budget_minutes * 60
    plan = Plan(
        scale, folder, out, peers=not alone, short=short, resume=resume, budget_s=budget_s,
        all_peers=all_peers,
    )  # fmt: skip
    failures = []
    if not sum_up:
        try:
            failures = measure(chosen or tuple(WORKLOADS), plan, anyway=anyway)
        except QuireError as error:
            raise click.ClickException(str(error)) from error
    click.echo(results.sum_up(out))
    click.echo(f"bench: the results are in {out}", err=True)
    if failures:
        raise click.ClickException("; ".join(failures))


if __name__ == "__main__":
    main()

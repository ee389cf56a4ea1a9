"""Quire and Apache Kafka side by side: `make bench`, and `make bench-short`.

    python -m ops.bench.compare --rounds 5
    python -m ops.bench.compare --only produce --only fixed-rate
    python -m ops.bench.compare --short --anyway

One system runs at a time. Each workload is measured in rounds, and each round gives every system
its turn, fresh and empty: Quire, Kafka, Quire, Kafka. How it measures is in `ops/bench/README.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click

from client.errors import QuireError
from ops.bench import machine, plots, summary
from ops.bench.figures import Run, Scale
from ops.bench.peers import kafka
from ops.bench.peers.kafka import KafkaSystem
from ops.bench.peers.quire import QuireSystem
from ops.bench.peers.system import REPLICAS, System
from ops.bench.workloads import catch_up, failover, fixed_rate, produce, small_requests, spark

WORKLOADS: Final[dict[str, ModuleType]] = {
    module.NAME: module
    for module in (produce, fixed_rate, small_requests, catch_up, spark, failover)
}
"""In the order in which they are measured. Fail-over is the last: it leaves a broker dead."""
RESULTS: Final = Path(__file__).parent / "results"
_DISK_MARGIN_BYTES: Final = 20_000_000_000

Make = Callable[[Path], System]


def systems(*, peers: bool, short: bool) -> dict[str, Make]:
    """Return how each system is made, in the order of their turns.

    Kafka with and without sync are started alike: a short run needs only one of them.
    """
    makers: dict[str, Make] = {"quire": QuireSystem}
    if peers:
        makers["kafka, synced"] = lambda folder: KafkaSystem(folder, synced=True)
    if peers and not short:
        makers["kafka, defaults"] = lambda folder: KafkaSystem(folder, synced=False)
    return makers


class Bench:
    """Gives each system its turn and keeps what it measured."""

    def __init__(self, makers: dict[str, Make], scale: Scale, folder: Path) -> None:
        self._makers = makers
        self._scale = scale
        self._folder = folder
        self._run = Run(scale)
        self.measured: list[summary.Measured] = []
        self.about: dict[str, Any] = {}

    async def turns(self, blocks: Sequence[Sequence[str]]) -> None:
        """Measure blocks of workloads one after the other; a turn is one block on one system."""
        for block in blocks:
            for number in range(1, self._scale.rounds + 1):
                for name, make in self._makers.items():
                    click.echo(f"bench: {', '.join(block)}, round {number}: {name}", err=True)
                    await self._turn(block, number, make)

    async def _turn(self, block: Sequence[str], number: int, make: Make) -> None:
        folder = Path(tempfile.mkdtemp(prefix="turn-", dir=self._folder))
        system = make(folder / "data")
        try:
            await system.start()
            self.about[system.about.name] = {
                "durability": system.about.durability,
                "settings": dict(system.settings()),
            }
            for workload in block:
                began_s = time.monotonic()
                figures = await WORKLOADS[workload].measure(system, self._run)
                took_s = time.monotonic() - began_s
                click.echo(f"bench:   {workload} took {took_s:.0f} s", err=True)
                self.measured += [
                    summary.Measured(system.about.name, number, figure) for figure in figures
                ]
        finally:
            await system.stop()
            await asyncio.to_thread(shutil.rmtree, folder)


def blocks_of(chosen: Sequence[str], *, short: bool) -> list[list[str]]:
    """Return what is measured on one start of a system: a workload, or in a short run all."""
    ordered = [name for name in WORKLOADS if name in chosen]
    return [ordered] if short else [[name] for name in ordered]


def check_disk(folder: Path, scale: Scale) -> None:
    """Raise QuireError when the disk has not the room for what will be written."""
    needed = scale.catch_up_bytes * REPLICAS + _DISK_MARGIN_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise QuireError(
            f"{folder} has {free / 1e9:.0f} GB free and the bench needs {needed / 1e9:.0f} GB:"
            " name a folder on a larger disk with --folder"
        )


def write(out: Path, about: dict[str, Any], measured: Sequence[summary.Measured]) -> None:
    """Write machine and settings, every round, the summary, its table and the plots."""
    out.mkdir(parents=True, exist_ok=True)
    rows = summary.rows(measured)
    rounds = [
        {"system": one.system, "round": one.round, **one.figure._asdict()} for one in measured
    ]
    for name, value in (("run", about), ("rounds", rounds), ("summary", rows)):
        (out / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")
    note = (
        ""
        if about["is a result"]
        else "**Not a result**: the machine was busy, or it was short.\n\n"
    )
    text = f"`{about['command']}`\n\n{note}{summary.markdown(rows)}"
    (out / "summary.md").write_text(text)
    plots.draw(summary.spreads(measured), out)


def measure(
    chosen: Sequence[str], scale: Scale, folder: Path, *, short: bool, anyway: bool, alone: bool
) -> Any:
    """Run everything; return (what was run where, the figures). Raises QuireError."""
    load_1_min = os.getloadavg()[0]
    quiet = machine.is_quiet(load_1_min)
    if not quiet and not anyway:
        raise QuireError(
            f"the load average is {load_1_min:.1f}, and above {machine.LOAD_MAX:g} nothing is a"
            " result: wait until the machine is idle, or measure with --anyway, which is recorded"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not short:
        check_disk(folder, scale)
        if not alone and not kafka.is_installed():
            raise QuireError(
                "Apache Kafka is not there: run `make bench`, which fetches it, or give --alone"
            )
    about: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "ops.bench.compare", *sys.argv[1:]]),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "is a result": quiet and not short,
        "anyway": anyway,
        "short": short,
        "machine": machine.facts(folder),
    }
    makers = systems(peers=kafka.is_installed() and not alone, short=short)
    bench = Bench(makers, scale, folder)
    asyncio.run(bench.turns(blocks_of(chosen, short=short)))
    return {**about, "systems": bench.about}, bench.measured


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option(
    "--only", "chosen", multiple=True, type=click.Choice(list(WORKLOADS)),
    help="Measure this workload; may be given more than once.  [default: all]",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), help="Rounds of each workload.  [default: 5]")
@click.option("--short", is_flag=True, help="A moment of each workload: only to see that it runs.")
@click.option("--alone", is_flag=True, help="Measure Quire without Apache Kafka.")
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
    short: bool,
    alone: bool,
    anyway: bool,
    folder: Path,
    out: Path,
) -> None:
    """Measure, and write the results."""
    sizes = Scale.short() if short else Scale(rounds=rounds or Scale().rounds)
    try:
        about, measured = measure(
            chosen or tuple(WORKLOADS), sizes, folder, short=short, anyway=anyway, alone=alone
        )
    except QuireError as error:
        raise click.ClickException(str(error)) from error
    write(out, about, measured)
    click.echo(summary.markdown(summary.rows(measured)))
    click.echo(f"bench: {len(measured)} figures are in {out}", err=True)


if __name__ == "__main__":
    main()

"""Where the time goes: samples brokers, bookies and clients under load, and writes a page.

    python -m ops.bench.profile
    python -m ops.bench.profile --only "produce, 16 KiB batches" --seconds 30

Each path has its load; py-spy samples the processes on it 200 times a second meanwhile, and
`/proc` says how much of their time the kernel took. The page is `ops/bench/PROFILE.md`: per process
the modules and functions that most samples were in, beside what the machine can do at best.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from client.errors import QuireError
from ops.bench import machine, stacks, topics
from ops.bench.figures import Run, Scale
from ops.bench.load.channel import LoadProcess
from ops.bench.page_cache import PageCache
from ops.bench.peers.bookies import QuireBookies
from ops.bench.peers.quire import QuireSystem
from ops.bench.process_cpu import tree, user_and_kernel_s
from ops.bench.turns import claimed
from ops.bench.workloads.brokers import compaction
from ops.bench.workloads.records.catch_up import cold, write_history
from ops.bench.workloads.records.produce_sizes import BATCHES
from ops.bench.workloads.storage import hardware

PAGE: Final = Path(__file__).parent / "PROFILE.md"
_SAMPLES_PER_S: Final = 200
_ROWS: Final = 15
_WARM_UP_S: Final = 3.0
_AFTER_S: Final = 2.0
"""How long the load goes on after the sampling."""
_LIMIT_BYTES: Final = 1 << 30
_READ_BYTES_PER_S: Final = 500_000_000
"""Written per second of sampling before it is read, so that the reading lasts."""
_COMPACTED_BYTES_PER_S: Final = 9_000_000
"""The same of what is compacted, at the default rate."""
_CLEANER_S: Final = 60.0
"""Within this long a broker looks what is to be compacted."""


class Process(NamedTuple):
    """A sampled process."""

    name: str
    user_cores: float
    kernel_cores: float
    shares: stacks.Shares


Sample = Callable[[float, Path, Run], Awaitable[list[Process]]]
"""Samples the processes of one path for this many seconds, in a folder of its own."""


async def record(name: str, pid: int, seconds: float, folder: Path) -> Process:
    """Sample a process. Raises QuireError when py-spy cannot."""
    py_spy = Path(sys.executable).with_name("py-spy")
    if not py_spy.exists():
        raise QuireError("py-spy is not there: pip install py-spy")
    output = folder / f"{pid}.raw"
    began_s, before = time.monotonic(), user_and_kernel_s(pid)
    process = await asyncio.create_subprocess_exec(
        *(str(py_spy), "record", "--pid", str(pid), "--duration", str(round(seconds))),
        *("--rate", str(_SAMPLES_PER_S), "--format", "raw", "--full-filenames", "--function"),
        *("--output", str(output)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    took_s, after = time.monotonic() - began_s, user_and_kernel_s(pid)
    if process.returncode:
        raise QuireError(
            f"py-spy could not sample {name} (it needs the right to trace processes):"
            f" {said.decode().strip()}"
        )
    user_s, kernel_s = (now - then for now, then in zip(after, before, strict=True))
    found = stacks.shares(output.read_text().splitlines())
    return Process(name, user_s / took_s, kernel_s / took_s, found)


async def _sampled(pids: Mapping[str, int], seconds: float, folder: Path) -> list[Process]:
    recordings = [record(name, pid, seconds, folder) for name, pid in pids.items()]
    return list(await asyncio.gather(*recordings))


@asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[QuireSystem]:
    system = QuireSystem(folder / "cluster")
    await system.start()
    try:
        yield system
    finally:
        await system.stop()


async def _on_the_way(system: QuireSystem, topic: str) -> dict[str, int]:
    """Return the broker that leads a topic's first partition, and a bookie."""
    leader = (await topics.leaders(system.bootstrap_servers, topic))[0]
    return {"leading broker": system.broker_pids()[leader], "bookie": system.bookie_pids()[0]}


async def _under(
    job: str, seconds: float, folder: Path, *, topic_partitions: int = 1, **arguments: Any
) -> list[Process]:
    """Sample a cluster under a load that runs until its time is over."""
    async with _cluster(folder) as system:
        await topics.create(system.bootstrap_servers, "profile", topic_partitions)
        async with LoadProcess(
            job,
            servers=system.bootstrap_servers,
            topic="profile",
            warm_up_s=_WARM_UP_S,
            measure_s=seconds + _AFTER_S,
            **arguments,
        ) as load:
            if job == "produce":
                await load.event("ready")
                load.say("go")
            await load.event("begin")
            pids = await _on_the_way(system, "profile")
            found = await _sampled({**pids, "load generator": load.pid}, seconds, folder)
            await load.event("end")
            if job == "produce":
                await load.event("done")
    return found


def _produce(batches: str, value_bytes: int = 1024, partitions: int = 1) -> Sample:
    async def sample(seconds: float, folder: Path, run: Run) -> list[Process]:
        return await _under(
            "produce", seconds, folder, topic_partitions=partitions,
            partitions=partitions, value_bytes=value_bytes, settings=BATCHES[batches],
            outstanding_bytes_max=32 << 20,
        )  # fmt: skip

    return sample


def _requests(connections: int, **arguments: int) -> Sample:
    async def sample(seconds: float, folder: Path, run: Run) -> list[Process]:
        return await _under(
            "requests", seconds, folder, value_bytes=100, connections=connections, **arguments
        )

    return sample


async def _catch_up(seconds: float, folder: Path, run: Run) -> list[Process]:
    async with _cluster(folder) as system:
        records = await write_history(system, "profile", round(seconds * _READ_BYTES_PER_S))
        await cold(system, run)
        async with LoadProcess(
            "read",
            servers=system.bootstrap_servers,
            topic="profile",
            partitions=4,
            records=records,
            group="profile",
        ) as load:
            await load.event("ready")
            load.say("go")
            pids = await _on_the_way(system, "profile")
            found = await _sampled({**pids, "load generator": load.pid}, seconds, folder)
            await load.event("done")
    return found


async def _compaction(seconds: float, folder: Path, run: Run) -> list[Process]:
    """Sample who leads a topic that is compacted, and the process that does the work for it."""
    async with _cluster(folder) as system:
        size = round(seconds * _COMPACTED_BYTES_PER_S)
        await compaction.write(system, "profile", size)
        pids = await _on_the_way(system, "profile")
        leader = pids["leading broker"]
        await asyncio.to_thread(
            compaction.configure, system.bootstrap_servers, "profile", compaction.COMPACT
        )
        async with asyncio.timeout(_CLEANER_S):
            while len(family := tree(leader)) < 2:  # noqa: ASYNC110  (the kernel tells nobody)
                await asyncio.sleep(0.05)
        return await _sampled({**pids, "cleaner": family[1]}, seconds, folder)


def _ledgers(entry_bytes: int) -> Sample:
    async def sample(seconds: float, folder: Path, run: Run) -> list[Process]:
        system = QuireBookies(folder / "bookies", 3)
        await system.start()
        try:
            async with LoadProcess(
                "ledgers",
                zookeeper=system.zookeeper,
                entry_bytes=entry_bytes,
                ledgers=4,
                in_flight=min(1_000, (2 << 20) // entry_bytes),
                copies=3,
                acks=2,
                warm_up_s=_WARM_UP_S,
                measure_s=seconds + _AFTER_S,
            ) as load:
                await load.event("ready")
                load.say("go")
                await load.event("begin")
                pids = {"ledger client": load.pid, "bookie": system.bookie_pids()[0]}
                found = await _sampled(pids, seconds, folder)
                await load.event("end")
                await load.event("done")
        finally:
            await system.stop()
        return found

    return sample


PATHS: Final[dict[str, Sample]] = {
    **{f"produce, {batches}": _produce(batches) for batches in BATCHES},
    "produce, 1 MB batches of 100 B": _produce("1 MB batches", 100),
    "produce, 1 MB batches of 100 B, 16 partitions": _produce("1 MB batches", 100, 16),
    "produce, ready-made 1 MB batches of 100 B": _requests(1, records=8_900, in_flight=5),
    "unbatched requests, 1 connection": _requests(1),
    "unbatched requests, 64 connections": _requests(64),
    "catch-up read": _catch_up,
    "compaction": _compaction,
    "ledgers, 1 KiB entries": _ledgers(1024),
    "ledgers, 64 KiB entries": _ledgers(65_536),
}


def page(found: Mapping[str, list[Process]], limits: Mapping[str, float], about: str) -> str:
    """Return the page: limits, then each path with its processes."""
    parts = [
        "# Where the time goes\n",
        f"{about}\n",
        "Made by `python -m ops.bench.profile`. Only running threads are sampled; a share is that"
        " of the process's samples. \"Cores\" are the process's CPU time according to `/proc`: in"
        " its own code, and in the kernel.\n",
        stacks.limits_table(limits),
    ]
    for path, processes in found.items():
        parts.append(f"## {path}\n")
        for one in processes:
            parts.append(
                f"### {one.name}: {one.user_cores:.2f} cores itself, {one.kernel_cores:.2f} in the"
                f" kernel, {one.shares.samples:,} samples\n"
            )
            parts.append(stacks.markdown(one.shares, _ROWS))
    return "\n".join(parts)


async def _sample(chosen: list[str], seconds: float, folder: Path) -> dict[str, list[Process]]:
    found = {}
    with contextlib.closing(PageCache(folder)) as page_cache:
        run = Run(Scale(), page_cache=page_cache)
        for path in chosen:
            click.echo(f"profile: {path}", err=True)
            await run.memory_filled()
            with tempfile.TemporaryDirectory(prefix="turn-", dir=folder) as scratch:
                found[path] = await PATHS[path](seconds, Path(scratch), run)
    return found


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--only", "chosen", multiple=True, type=click.Choice(list(PATHS)), help="This path.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True)
@click.option("--anyway", is_flag=True, help="Sample on a busy machine; the page says so.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("data/bench"),
    show_default=True, help="Where the systems keep their data meanwhile.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=PAGE,
    help="The page.  [default: ops/bench/PROFILE.md]",
)  # fmt: skip
def main(chosen: tuple[str, ...], seconds: float, anyway: bool, folder: Path, out: Path) -> None:
    """Sample, and write the page."""
    logging.basicConfig(level=logging.ERROR)
    quiet = machine.is_quiet(os.getloadavg()[0])
    if not quiet and not anyway:
        raise click.ClickException("the machine is busy: wait, or sample with --anyway")
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    command = shlex.join(["python", "-m", "ops.bench.profile", *sys.argv[1:]])
    about = f"`{command}`, {began}, commit {machine.commit()}."
    if not quiet:
        about += " **The machine was busy**: rates and limits are no results."
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(claimed(folder))
            limits = hardware.limits(folder, _LIMIT_BYTES)
            found = asyncio.run(_sample(list(chosen or PATHS), seconds, folder))
        except QuireError as error:
            raise click.ClickException(str(error)) from error
    out.write_text(page(found, limits, about))
    click.echo(f"profile: {out}", err=True)


if __name__ == "__main__":
    main()

"""How many calls a produced batch costs, and which files it passes: counted, so the same on every
machine.

In a quiet cluster a producer writes a number of batches, and then three times as many in another
one just like it; what the second costs more is what batches cost. Counted are calls of functions of
ours, and those of C functions that they make, by room; they are nearly all that a broker's
instructions go into. `COST.md` has them commit by commit, and a test holds the newest row. A file
that makes a call for each batch is on a batch's way, from the producer's socket
to three disks and back; the second budget of the house is their number.

    python -m tests.simulation.call_cost          the rows for a commit that changes them
    python -m tests.simulation.call_cost --files  the files, in the order of their calls
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.bookies import machines
from tests.simulation.bookies.swarm import DiskOptions
from tests.simulation.clusters import swarm as cluster_swarm
from tests.simulation.clusters.world import ClusterWorld
from tests.simulation.machine.net import NetOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from tests.simulation.clusters.swarm import ClusterSwarm

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path(__file__).with_name("COST.md")
ROOMS: Final = ("broker", "client", "bookie")
FILES: Final = "files"
_PASSED: Final = 0.9
"""Calls per batch from which on a file is on its way; what runs by the clock makes fewer."""
_BATCHES: Final = 40
_BYTES: Final = 100


class Shape(NamedTuple):
    """How batches are sent."""

    in_flight: int
    partitions: int


SHAPES: Final = {"one at a time": Shape(1, 1), "five under way": Shape(5, 1)}


def measure(shape: Shape) -> dict[str, float]:
    """Return the calls that a batch costs in `broker`, `client` and `bookie`, three bookies and
    both ends of the client's connection included, and the number of `files` that it passes."""
    calls = by_file(shape)
    found = {
        room: sum(count for file, count in calls.items() if file.startswith(f"{room}/"))
        for room in ROOMS
    }
    return {**found, FILES: len(passed(calls))}


def passed(calls: Mapping[str, float]) -> list[str]:
    """Return the product's files on a batch's way, those with the most calls first."""
    ours = [file for file, count in calls.items() if count >= _PASSED and file.startswith(ROOMS)]
    return sorted(ours, key=lambda file: (-calls[file], file))


def by_file(shape: Shape) -> dict[str, float]:
    """Return the calls that a batch costs more in each file of ours, named from the root."""
    _run(shape, 1)  # what is made once per process is made
    fewer, base = _run(shape, _BATCHES)
    more, calls = _run(shape, 3 * _BATCHES)
    return {file: (calls[file] - base[file]) / (more - fewer) for file in sorted(calls)}


def recorded() -> dict[str, dict[str, float]]:
    """Return what the newest row of the page says of each shape."""
    found: dict[str, dict[str, float]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > len(ROOMS) + 1 and cells[1] in SHAPES and cells[-1]:
            found[cells[1]] = dict(zip((*ROOMS, FILES), map(float, cells[2:]), strict=True))
    return found


def _run(shape: Shape, batches: int) -> tuple[int, Counter[str]]:
    """Run a cluster; return the batches acknowledged, and the calls by file."""
    plan = _plan(shape, batches)
    world = ClusterWorld(plan, log=False)
    calls: Counter[str] = Counter()
    names: dict[str, str] = {}

    def count(frame: FrameType, event: str, _arg: object) -> None:
        if event in ("call", "c_call"):
            file = frame.f_code.co_filename
            name = names.get(file)
            if name is None:
                name = names[file] = _name(file)
            calls[name] += 1

    gc.collect()  # what others have left would be counted when it is collected
    collects = gc.isenabled()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = machines.run(world, plan)
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    assert not result.violation, result.violation
    return result.counts["batches acknowledged"], calls


def _name(file: str) -> str:
    path = Path(file)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "other"


def _plan(shape: Shape, batches: int) -> ClusterSwarm:
    quiet = cluster_swarm.quiet(1)
    common = replace(
        quiet.common,
        bookies=3,
        quorums=(3, 3, 2),
        fault_phase_s=0.0,
        self_checks=False,
        inspected=False,
        net=NetOptions(),
        disk=DiskOptions(),
    )
    return replace(
        quiet,
        common=common,
        brokers=2,
        partitions=shape.partitions,
        quorums=(3, 3, 2),
        segment_bytes=1 << 20,
        snapshot_interval_bytes=1 << 22,
        producers=1,
        batches=batches,
        batch_records_max=1,
        payload_bytes=_BYTES,
        in_flight=shape.in_flight,
        think_s=0.0,
        readers=0,
        members=0,
        trims=False,
        auto_recovery=False,
        tail_cache_bytes=1 << 20,
        sweep_every_s=0.0,
        compression="producer",
        room_bytes=0,
    )


def main() -> None:
    """Print the rows of the present tree, or the files on a batch's way."""
    if "--files" in sys.argv[1:]:
        calls = by_file(SHAPES["one at a time"])
        for file in passed(calls):
            print(f"{calls[file]:6.1f}  {file}")
        return
    for name, shape in SHAPES.items():
        found = measure(shape)
        print(f"| | {name} |", " | ".join(f"{found[what]:.0f}" for what in (*ROOMS, FILES)), "|")


if __name__ == "__main__":
    main()

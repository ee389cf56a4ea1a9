"""Asks Apache Kafka and Quire what the generator makes of a seed, and prints what differs.

    python -m tests.integration.differential --seed 7 --requests 5000

The classes that no row of `explained_classes.py` explains come last; if there are any, the exit
code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from pathlib import Path

from tests.integration.differential.campaign import classes, compare, sort_out
from tests.integration.differential.explained_classes import EXPLAINED_CLASSES, OF_OTHER_SEEDS
from tests.integration.differential.pair import both


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.differential")
    parser.add_argument("--seed", type=int, default=1, help="which requests (default: 1)")
    parser.add_argument("--requests", type=int, default=4_000, help="how many (default: 4000)")
    parser.add_argument(
        "--ports", type=int, nargs=2, metavar=("KAFKA", "QUIRE"),
        help="of fresh brokers that run already, each alone and with the id 0",
    )  # fmt: skip
    told = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if told.ports:
            ports = (told.ports[0], told.ports[1])
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="differential-"))
            ports = stack.enter_context(both(Path(folder)))
        found, plan = asyncio.run(compare(ports, told.seed, told.requests))
    left, explained, idle = sort_out(found, (*EXPLAINED_CLASSES, *OF_OTHER_SEEDS))
    print(f"{len(plan)} requests of {len({one.key for one in plan})} APIs, seed {told.seed}")
    for title, rows in (("explained", explained), ("NOT EXPLAINED", left)):
        groups = classes(rows)
        print(f"\n{title}: {len(rows)} differences in {len(groups)} classes")
        for one in groups:
            print(f"  {one}")
    if idle:
        print("\nrows that explained nothing this time:")
        for row in idle:
            print(f"  {row.where}")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())

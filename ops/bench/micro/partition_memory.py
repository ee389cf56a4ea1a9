"""`python -m ops.bench.micro.partition_memory [PARTITIONS [lines]]`: what an idle partition keeps.

A whole broker with its ledger client leads this many partitions with the configuration's defaults,
each with nothing but the snapshot its ledger begins with. The metadata store is in memory, and
bookies say yes and keep nothing; what both keep is not counted. Bytes are those that Python's
allocator was asked for, for each partition beyond the first half of them. `lines` also lists the
lines of code that asked for most.

What a process takes beyond that (ZooKeeper's client with its watches, the allocator's own) is
measured by the workload `partitions` of the bench.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import uvloop

from broker.app import Broker
from broker.config import BrokerConfig
from client.ids import BookieId, BrokerId
from client.ledger.bookies.bookie_link import OnAnswer
from client.ledger.client import LedgerClient
from client.ledger.core.placement import DEFAULT_RACK
from client.metadata import memory, memory_requests, memory_server, paths, tree
from client.metadata.bookkeeper import init_bookkeeper
from client.wire.bookkeeper.messages import AddRequest, AddResponse, Request, Status

_PARTITIONS: Final = 2_000
_PER_TOPIC: Final = 500
_BOOKIES: Final = tuple(BookieId(f"bookie-{number}:3181") for number in range(3))
_NOW_MS: Final = 1_800_000_000_000
_SHOWN: Final = 40
_POLL_S: Final = 0.05
_SETTLE_S: Final = 1.0
_ROOT: Final = f"{Path(__file__).parents[3]}/"
_NOT_COUNTED: Final = (
    __file__,
    memory.__file__,
    memory_requests.__file__,
    memory_server.__file__,
    tree.__file__,
    tracemalloc.__file__,
)


class _Clock:
    def now_ms(self) -> int:
        return _NOW_MS


class _Bookies:
    """Bookies that confirm every add."""

    is_unreachable = False
    writable, readonly = _BOOKIES, ()
    has_long_poll = True

    def __init__(self) -> None:
        self._listeners: dict[Callable[[], None], None] = {}

    def rack(self, _bookie: BookieId) -> str:
        return DEFAULT_RACK

    def bookie(self, _bookie: BookieId) -> _Bookies:
        return self

    def add_listener(self, listener: Callable[[], None]) -> None:
        self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[], None]) -> None:
        del self._listeners[listener]

    async def start(self) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to close."""

    def request(self, request: Request, on_answer: OnAnswer, _size: int = 0) -> None:
        assert isinstance(request, AddRequest), "an idle partition only adds"
        answer = AddResponse(Status.OK, request.ledger_id, request.entry_id)
        asyncio.get_running_loop().call_soon(on_answer, request, answer)


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _PARTITIONS
    lines = uvloop.run(_measured(count))
    counted = count - count // 2
    click.echo(f"{count:,} idle partitions: {sum(lines.values()) / counted:,.0f} B each")
    if sys.argv[2:] == ["lines"]:
        for line, size in lines.most_common(_SHOWN):
            click.echo(f"  {size / counted:5,.0f}  {line}")


async def _measured(count: int) -> Counter[str]:
    """Return the bytes that are kept for the second half of so many partitions, by line."""
    metadata, rng = memory.MemoryCluster(), random.Random(1)  # noqa: S311
    admin, store = metadata.session(), metadata.session()
    await init_bookkeeper(admin, rng=rng)
    for bookie in _BOOKIES:
        await admin.create(paths.cookie(bookie), make_parents=True)
    config = BrokerConfig(node_id=BrokerId(1), port=0, admin_port=-1)
    ledgers = LedgerClient(store, rng=rng, clock=_Clock(), bookies=_Bookies(), config=config.ledger)
    await ledgers.start()
    broker = Broker(config, store=store, ledgers=ledgers, clock=_Clock(), rng=rng)
    await broker.start()
    tracemalloc.start()
    try:
        await _lead(broker, "first", count // 2)
        before = _kept()
        await _lead(broker, "second", count - count // 2)
        lines = _kept()
        lines.subtract(before)
        return lines
    finally:
        tracemalloc.stop()
        await broker.close()
        await ledgers.close()


async def _lead(broker: Broker, name: str, count: int) -> None:
    """Make topics with so many partitions, and wait until they are led and idle."""
    for begin in range(0, count, _PER_TOPIC):
        await broker.topics.create(f"{name}-{begin}", min(_PER_TOPIC, count - begin))
    while broker.missing():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_POLL_S)
    await asyncio.sleep(_SETTLE_S)


def _kept() -> Counter[str]:
    """Return what was allocated since tracing began and is not free, by line."""
    gc.collect()
    skipped = [tracemalloc.Filter(inclusive=False, filename_pattern=name) for name in _NOT_COUNTED]
    traced = tracemalloc.take_snapshot().filter_traces(skipped)
    found: Counter[str] = Counter()
    for line in traced.statistics("lineno"):
        frame = line.traceback[0]
        found[f"{frame.filename.removeprefix(_ROOT)}:{frame.lineno}"] += line.size
    return found


if __name__ == "__main__":
    main()

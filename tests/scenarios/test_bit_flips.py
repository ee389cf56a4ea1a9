"""Every file of a bookie, damaged everywhere: no wrong byte, no denial, and somebody is told.

A bookie on real files and a real LevelDB takes entries, a fence and keys, and ends by a stop or a
kill. Then, one at a time, a bit of each of its files is flipped, or the file is cut. Whatever a
bookie on those files says must be true: the right bytes, or an error, or it refuses to start.
"No such entry" for what it acknowledged would be the loss of it, as a recovery believes that.

`QUIRE_DAMAGE_POSITIONS` sets at how many places of each file (24 unless told).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bookie.__main__ import open_directory
from bookie.bookie import ledger_directory_limits
from bookie.config import BookieConfig
from bookie.errors import StorageError
from bookie.membership import cookie
from bookie.metrics import BookieMetrics
from bookie.server.handlers import BatchLimits, Handlers
from bookie.storage.core.group_commit import Backlog
from bookie.storage.ledger_directories import open_ledger_directories
from client.errors import ConfigError, QuireError
from client.ids import BookieId
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster
from client.metadata.paths import LEDGERS_ROOT
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import FixedClock, add, fence, payload_of, read

POSITIONS = int(os.environ.get("QUIRE_DAMAGE_POSITIONS", "24"))
CUTS = max(2, POSITIONS // 4)
FENCED, OPEN = 5, 7
ENTRIES = 24
NAME = BookieId("127.0.0.1:3181")


def payload(ledger: int, entry: int) -> bytes:
    """Bytes that name their place; some longer than a block of the index."""
    return b"%d/%d " % (ledger, entry) * (1 + 37 * (entry % 5))


class Machine:
    """One bookie process on a folder."""

    def __init__(self, handlers: Handlers, metrics: BookieMetrics) -> None:
        self._handlers = handlers
        self.metrics = metrics

    async def call(self, request: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._handlers.handle(request, future.set_result)
        async with asyncio.timeout(20):
            return await future

    async def status(self, request: Any) -> Status:
        status: Status = (await self.call(request)).status
        return status


@asynccontextmanager
async def machine(folder: Path, cluster: MemoryCluster) -> AsyncIterator[Machine]:
    """Run a bookie on `folder`. Raises what a start refuses with."""
    config = BookieConfig(
        data_dir=folder,
        log_file_bytes_max=1 << 14,
        log_preallocate_bytes=0,
        cache_bytes_max=0,
        index_write_buffer_bytes=1 << 16,
        frame_bytes_max=1 << 13,
        reader_threads=1,
    )
    directory = open_directory(config, folder)
    loop = asyncio.get_running_loop()
    try:
        await cookie.admit(
            cluster.session(),
            [directory],
            bookie_id=NAME,
            may_grow=False,
            root=LEDGERS_ROOT,
            rng=random.Random(1),
        )
        metrics = BookieMetrics()
        backlog = Backlog(1 << 20)
        ledger_directories = await open_ledger_directories(
            [directory],
            ledger_directory_limits(config),
            backlog=backlog,
            loop=loop,
            metrics=metrics,
            on_failed=lambda path, error: logging.getLogger("bookie").error("%s: %s", path, error),
        )
        ledger_directories.publish(metrics)
        handlers = Handlers(
            ledger_directories,
            batch_limits=BatchLimits(1 << 16, 5000, 1 << 24),
            loop=loop,
            clock=FixedClock(),
            metrics=metrics,
        )
        try:
            yield Machine(handlers, metrics)
        finally:
            await ledger_directories.close()
    finally:
        directory.disk.close()


def take_picture(folder: Path, to: Path) -> None:
    """Copy a living bookie's folder as it was at one moment: what kill -9 would leave.

    LevelDB has threads of its own; a copy during which a file changed shows a state that never
    was, and is taken again.
    """

    def look() -> dict[Path, tuple[int, int]]:
        stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}

    while True:
        shutil.rmtree(to, ignore_errors=True)
        try:
            before = look()
            shutil.copytree(folder, to)
            if look() == before:
                return
        except (FileNotFoundError, shutil.Error):
            continue  # a file went away meanwhile


class Store(NamedTuple):
    """A folder as a bookie left it, where that bookie has it, and the metadata of its cluster."""

    left: Path
    folder: Path
    cluster: MemoryCluster


@pytest.fixture(params=["stopped", "killed"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    cluster = MemoryCluster()
    await init_bookkeeper(cluster.session(), rng=random.Random(1))
    folder, left = tmp_path / "bookie", tmp_path / "left"
    folder.mkdir()
    for _ in range(2):  # the second one begins with tables, and leaves a log of the index too
        async with machine(folder, cluster) as bookie:
            for entry in range(ENTRIES):
                for ledger in (OPEN, FENCED):
                    status = await bookie.status(add(ledger, entry, payload(ledger, entry)))
                    assert status in (Status.OK, Status.FENCED)
            await bookie.status(fence(FENCED))
            if request.param == "killed":
                take_picture(folder, left)
    if request.param == "stopped":
        shutil.copytree(folder, left)
    return Store(left, folder, cluster)


class Damage(NamedTuple):
    """What is done to a file."""

    name: str
    position: int
    bit: int
    """-1: the file is cut at `position`."""

    def do(self, folder: Path) -> None:
        path = folder / self.name
        if self.bit < 0:
            os.truncate(path, self.position)
            return
        data = bytearray(path.read_bytes())
        data[self.position] ^= 1 << self.bit
        path.write_bytes(data)


def kind_of(name: str) -> str:
    """Which type of file this is."""
    if name.startswith("index/"):
        return "index/" + (Path(name).suffix or Path(name).name.partition("-")[0])
    return "log" if name.startswith("log/") else name


def damages(folder: Path, rng: random.Random) -> Iterator[Damage]:
    """Places all over every file, both ends included."""
    for path in sorted(folder.rglob("*")):
        size = path.stat().st_size
        if not path.is_file() or not size:
            continue
        name = str(path.relative_to(folder))
        places = {round(n * (size - 1) / (POSITIONS - 1)) for n in range(POSITIONS)}
        for position in sorted(places):
            yield Damage(name, position, rng.randrange(8))
        for n in range(CUTS):
            yield Damage(name, n * size // CUTS, -1)


async def judge(bookie: Machine) -> bool:
    """Check all that it says; return whether it says everything."""
    whole = True
    for ledger in (OPEN, FENCED):
        for entry in range(ENTRIES):
            reply = await bookie.call(read(ledger, entry))
            assert reply.status not in (Status.NO_ENTRY, Status.NO_LEDGER), f"denies {entry}"
            if reply.status is Status.OK:
                assert payload_of(ledger, reply.entry) == payload(ledger, entry)
            else:
                whole = False
    for ledger, entry in ((OPEN, ENTRIES), (99, 0)):
        assert await bookie.status(read(ledger, entry)) is not Status.OK
    assert await bookie.status(add(FENCED, ENTRIES)) is not Status.OK, "forgot the fence"
    stranger = b"\1" * 20
    assert await bookie.status(add(OPEN, ENTRIES, key=stranger)) is not Status.OK, "forgot the key"
    return whole


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_whatever_a_bookie_says_on_damaged_files_is_true(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    outcomes: dict[str, Counter[str]] = {}
    for damage in damages(store.left, random.Random(7)):
        shutil.rmtree(store.folder)
        shutil.copytree(store.left, store.folder)
        damage.do(store.folder)
        caplog.clear()
        try:
            async with machine(store.folder, store.cluster) as bookie:
                whole = await judge(bookie)
                reported = bool(caplog.records) or bookie.metrics.gauges["damaged_ranges"]() > 0
            assert whole or reported, "nobody is told"
            outcome = "harmless" if whole else "errors"
        except (StorageError, ConfigError, QuireError, OSError) as refusal:
            assert str(refusal)
            outcome = "refuses to start"
        except AssertionError as error:
            raise AssertionError(f"{damage}: {error}") from error
        outcomes.setdefault(kind_of(damage.name), Counter())[outcome] += 1
    for kind, counts in sorted(outcomes.items()):
        print(kind, dict(counts))
    assert {"VERSION", "CHECKPOINT", "log", "index/.ldb", "index/MANIFEST"} <= outcomes.keys()
    assert outcomes["log"]["errors"] > 0, "damage is not just passed over"

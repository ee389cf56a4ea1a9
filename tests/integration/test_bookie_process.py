"""`python -m bookie` as a process: kill -9 under load, graceful stop, refusals to start."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from bookie.admin.inspect import Inspection, Report
from bookie.storage.disk import at_rest
from client.ids import LedgerId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import add, fence, payload_of, read
from tests.integration.cluster import wait_until
from tests.integration.lone_bookie import LEDGER, BookieProcess, Load

pytestmark = pytest.mark.smoke

KILLS = int(os.environ.get("QUIRE_CRASH_KILLS", "5"))
"""How often the bookie dies; `make crash-loop` says a hundred times."""
ADDS_BETWEEN = 500
SAMPLE = 300
"""Entries read back after each start; after the last one, all of them."""


@pytest.mark.timeout(120 + 30 * KILLS)
async def test_nothing_acknowledged_is_lost_by_kill_9(
    bookie: BookieProcess, store: ZooKeeperStore
) -> None:
    """The short form of a hundred kills. Log files are small: kills meet their ends, too."""
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    rng = random.Random(KILLS)
    load = Load()
    for number in range(KILLS):
        bookie.start("--log-file-bytes-max=1000000")
        peer = await bookie.connect()
        sample = rng.sample(load.acknowledged, min(SAMPLE, len(load.acknowledged)))
        await load.check(peer, [*sample, *load.acknowledged[-SAMPLE:]])
        assert (await peer.call(fence(1000 + number))).status is Status.NO_ENTRY
        load.run(peer)
        await load.more(ADDS_BETWEEN + rng.randrange(ADDS_BETWEEN))
        assert bookie.signal(signal.SIGKILL) != 0
        await peer.lost.wait()
    bookie.start("--log-file-bytes-max=1000000")
    peer = await bookie.connect()
    await load.check(peer)
    for number in range(KILLS):
        assert (await peer.call(add(1000 + number, 0))).status is Status.FENCED
    assert len(load.acknowledged) >= KILLS * ADDS_BETWEEN
    assert "ERROR" not in bookie.log_path.read_text()
    assert await asyncio.to_thread(bookie.signal, signal.SIGTERM) == 0
    report = await inspected(bookie.folder / "data")
    assert report.problems == []
    assert report.ledgers[LedgerId(LEDGER)].entry_count >= len(load.acknowledged)


async def inspected(folder: Path) -> Report:
    """Read every record of a stopped bookie."""
    with at_rest(folder) as files:
        return await asyncio.to_thread(Inspection(files, lambda name, size: None).run)


async def test_stops_gracefully(bookie: BookieProcess, store: ZooKeeperStore) -> None:
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    bookie.start()
    peer = await bookie.connect()
    assert (await peer.call(add(7, 0, b"kept"))).status is Status.OK
    await asyncio.to_thread(wait_until, bookie.is_ready, "the bookie to be registered")
    node = paths.available_bookie(f"127.0.0.1:{bookie.port}", bookie.root)  # type: ignore[arg-type]
    assert await store.exists(node) is not None
    assert await asyncio.to_thread(bookie.signal, signal.SIGTERM) == 0
    assert await store.exists(node) is None
    bookie.start()
    peer = await bookie.connect()
    assert payload_of(7, (await peer.call(read(7, 0))).entry) == b"kept"
    assert await asyncio.to_thread(bookie.signal, signal.SIGINT) == 0


async def test_refusals_to_start_say_why(bookie: BookieProcess, store: ZooKeeperStore) -> None:
    bookie.start()
    assert await bookie.exit_code() == 2
    assert "quire metadata init" in bookie.log_path.read_text()
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    bookie.start()
    peer = await bookie.connect()
    await peer.call(add(7, 0))

    second = BookieProcess(bookie.folder, "unused", bookie.root)
    second.flags = bookie.flags
    second.start("--port=0")
    assert await second.exit_code() == 2
    assert "in use by another bookie" in bookie.log_path.read_text()
    elsewhere = bookie.folder / "elsewhere"
    second.start(f"--data-dir={elsewhere}", "--bookie-id=other", "--admin-port=0")
    assert await second.exit_code() == 2
    assert "address already in use" in bookie.log_path.read_text()

    assert await asyncio.to_thread(bookie.signal, signal.SIGTERM) == 0
    next((bookie.folder / "data" / "log").iterdir()).unlink()
    bookie.start()
    assert await bookie.exit_code() == 2
    assert "is missing" in bookie.log_path.read_text()
    bookie.start("--no-such-flag")
    assert await bookie.exit_code() == 2
    assert "unknown flag" in bookie.log_path.read_text()
    assert "Traceback" not in bookie.log_path.read_text()

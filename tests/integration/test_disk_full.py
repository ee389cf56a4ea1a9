"""A disk fills up in the middle of group commits, then has room again: nothing acknowledged is
lost, and writes resume by themselves.

The disk is a small tmpfs where mounting is allowed. Elsewhere the kernel's limit on the size of
files stands in for it, which the log's file meets in the middle of a write in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.ids import LedgerId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from tests.integration.lone_bookie import LEDGER, BookieProcess, Load, Peer

MIB = 1 << 20
DISK_BYTES = 64 * MIB
LEFT_BYTES = 3 * MIB
"""What is left when the disk is about to be full."""
RESERVE_BYTES = 8 * MIB
"""`free_bytes_min`: for fences and the index."""


class SmallDisk:
    """A folder whose disk can be filled."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self.is_mounted = is_mounted

    def fill(self, bookie: BookieProcess, left: int) -> None:
        """Leave `left` bytes."""
        if self.is_mounted:
            with (self.folder / "ballast").open("ab") as file:
                # The bookie writes meanwhile, so what was free may not be any more.
                while (size := self._free() - left) > 0:
                    with contextlib.suppress(OSError):
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
        else:
            log = max((bookie.data / "log").iterdir())
            self._limit(bookie, log.stat().st_size + left)

    def free(self, bookie: BookieProcess) -> None:
        """Give it all back."""
        if self.is_mounted:
            (self.folder / "ballast").unlink()
        else:
            self._limit(bookie, resource.RLIM_INFINITY)

    def _free(self) -> int:
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize

    def _limit(self, bookie: BookieProcess, size: int) -> None:
        assert bookie.process is not None
        limits = (size, resource.RLIM_INFINITY)
        resource.prlimit(bookie.process.pid, resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "quire-test", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    yield SmallDisk(folder, is_mounted=is_mounted)
    if is_mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@asynccontextmanager
async def loaded(
    bookie: BookieProcess, store: ZooKeeperStore, disk: SmallDisk, *flags: str
) -> AsyncIterator[tuple[Peer, Load]]:
    """A bookie on the small disk, with adds going on."""
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    # Scarce space makes the bookie delete what the cluster does not know.
    await store.create(paths.ledger(LedgerId(LEDGER), bookie.root), make_parents=True)
    bookie.data = disk.folder / "data"
    bookie.start(
        *("--log-preallocate-bytes=0", "--disk-full-retry-ms=100", "--gc-wait-ms=86400000"),
        *flags,
    )
    peer = await bookie.connect()
    load = Load(may_fail=True)
    load.run(peer)
    await load.more(500)
    assert load.refused == 0
    yield peer, load


async def refused(load: Load) -> None:
    """Wait until adds are refused."""
    async with asyncio.timeout(60):
        while load.refused < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def survived(bookie: BookieProcess, load: Load) -> None:
    """Kill the bookie and read everything back that was acknowledged."""
    bookie.signal(signal.SIGKILL)
    bookie.start()
    await load.check(await bookie.connect())


async def test_the_disk_is_full_in_the_middle_of_a_group_commit(
    bookie: BookieProcess, store: ZooKeeperStore, disk: SmallDisk
) -> None:
    flags = (f"--free-bytes-min={RESERVE_BYTES}", "--disk-usage-threshold=1.0")
    async with loaded(bookie, store, disk, *flags) as (peer, load):
        for number in (1, 2):
            reserve = RESERVE_BYTES if disk.is_mounted else 0
            disk.fill(bookie, reserve + LEFT_BYTES)
            await refused(load)
            assert bookie.log_path.read_text().count("log.disk_full") >= number
            confirmed = len(load.acknowledged)
            await load.check(peer, load.acknowledged[-50:])
            disk.free(bookie)
            await load.more(500)
            assert len(load.acknowledged) >= confirmed + 500
            load.refused = 0
        assert bookie.process is not None
        assert bookie.process.poll() is None, "one and the same process"
        await survived(bookie, load)


async def test_a_full_disk_makes_read_only_and_room_makes_writable(
    bookie: BookieProcess, store: ZooKeeperStore, disk: SmallDisk
) -> None:
    """With the thresholds that are in force by default."""
    node = paths.readonly_bookie(f"127.0.0.1:{bookie.port}", bookie.root)  # type: ignore[arg-type]
    flags = (
        "--disk-check-interval-ms=100",
        f"--free-bytes-min={RESERVE_BYTES}",
        "--priority-free-bytes-min=0",
        "--pending-bytes-max=2000000",
    )
    async with loaded(bookie, store, disk, *flags) as (_, load):
        disk.fill(bookie, (RESERVE_BYTES if disk.is_mounted else 0) + LEFT_BYTES)
        await refused(load)
        async with asyncio.timeout(30):
            while await store.exists(node) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        disk.free(bookie)
        await load.more(500)
        async with asyncio.timeout(30):
            while await store.exists(node) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await survived(bookie, load)


async def test_somebody_else_takes_the_last_byte(
    bookie: BookieProcess, store: ZooKeeperStore, disk: SmallDisk
) -> None:
    """Not even the index finds room: then the bookie may end, and its supervisor starts it."""
    flags = ("--free-bytes-min=0", "--disk-usage-threshold=1.0", "--index-write-buffer-bytes=65536")
    async with loaded(bookie, store, disk, *flags) as (peer, load):
        disk.fill(bookie, 0)
        async with asyncio.timeout(60):
            while not load.refused and not peer.lost.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        disk.free(bookie)
        assert bookie.process is not None
        if bookie.process.poll() is None and not peer.lost.is_set():
            await load.more(500)
        await survived(bookie, load)

"""Read-only and back: full disks, damage, failed disks, the operator; and what is taken then."""

from __future__ import annotations

import asyncio

import pytest

from bookie.membership.read_only_state import ReadOnlyLimits, ReadOnlyState
from bookie.storage.core.disk_space import SpaceLimits
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import add, fence, read, settle
from tests.fakes.ledger_directories import DirectoryRack
from tests.unit.bookie.storage.test_storage import write_lac

CAPACITY = 1_000_000
LIMITS = ReadOnlyLimits(
    space=SpaceLimits(0.95, 0.90, 0.95, 1000, 2000),
    check_interval_s=3600.0,
    read_only_on_any_full=True,
    priority_free_bytes_min=20_000,
)


class Watched:
    """Ledger directories on small disks, and what their watcher told."""

    def __init__(self, count: int = 1) -> None:
        self.rack = DirectoryRack(count)
        self.told: list[bool] = []
        self.scarce = 0
        self.read_only_state: ReadOnlyState

    async def start(self, limits: ReadOnlyLimits = LIMITS) -> Watched:
        await self.rack.start()
        for bay in self.rack.bays:
            bay.volume.capacity_bytes = CAPACITY
        self.read_only_state = ReadOnlyState(
            self.rack.ledger_directories,
            limits,
            loop=asyncio.get_running_loop(),
            metrics=self.rack.metrics,
            on_change=self.told.append,
            on_scarce=self._on_scarce,
        )
        await self.read_only_state.look()
        return self

    def _on_scarce(self) -> None:
        self.scarce += 1

    async def leave(self, free: int, bay: int = 0) -> None:
        """Let somebody else use the disk, but for `free` bytes."""
        volume = self.rack.bays[bay].volume
        volume.used_bytes += volume.free_bytes - free
        await self.read_only_state.look()

    async def add(self, ledger: int, entry: int = 0, **flags: bool) -> Status:
        return await self.rack.status(add(ledger, entry, **flags))


async def test_a_full_disk_makes_read_only_and_room_makes_writable_again() -> None:
    """4640: it stayed read-only after space had been freed."""
    watched = await Watched().start()
    assert await watched.add(7) is Status.OK
    await watched.leave(50_000)
    assert watched.read_only_state.reasons == ["/0 is full"]
    assert await watched.add(7, 1) is Status.READ_ONLY
    assert await watched.rack.status(write_lac(7, 0)) is Status.READ_ONLY
    assert await watched.rack.status(read(7, 0)) is Status.OK
    assert await watched.rack.status(fence(7)) is Status.OK
    assert await watched.add(7, 1, recovery=True) is Status.OK
    assert await watched.add(8, 0, high_priority=True) is Status.OK
    await watched.leave(50_100)
    assert not watched.read_only_state.is_read_only
    assert await watched.add(9) is Status.OK
    assert watched.told == [False, True, False]


async def test_with_little_left_not_even_recovery_is_taken_but_fences_are() -> None:
    watched = await Watched().start()
    await watched.leave(20_000)
    assert await watched.add(7, recovery=True) is Status.OK
    assert watched.read_only_state.takes_priority
    await watched.leave(19_999)
    assert await watched.add(7, 1, recovery=True) is Status.READ_ONLY
    assert await watched.add(7, 1, high_priority=True) is Status.READ_ONLY
    assert not watched.read_only_state.takes_priority
    assert await watched.rack.status(fence(7)) is Status.OK


async def test_the_lower_mark_keeps_it_from_coming_and_going() -> None:
    watched = await Watched().start(LIMITS._replace(space=LIMITS.space._replace(room_below=0.80)))
    for free, read_only in ((50_000, True), (150_000, True), (200_001, False), (50_001, False)):
        await watched.leave(free)
        assert watched.read_only_state.is_read_only is read_only


async def test_scarce_space_is_told_at_every_look() -> None:
    watched = await Watched().start()
    assert watched.scarce == 0
    await watched.leave(100_000)
    await watched.leave(50_000)
    assert watched.scarce == 2
    assert watched.told == [False, True]


async def test_an_operator_decides_and_takes_it_back() -> None:
    watched = await Watched().start()
    watched.read_only_state.force(True)
    assert await watched.add(7) is Status.READ_ONLY
    assert await watched.add(7, recovery=True) is Status.OK
    await watched.leave(50_000)
    watched.read_only_state.force(False)
    assert watched.read_only_state.is_read_only
    assert watched.told == [False, True]
    await watched.leave(500_000)
    assert await watched.add(7, 1) is Status.OK


async def test_one_full_directory_makes_read_only_unless_told_otherwise() -> None:
    watched = await Watched(2).start()
    await watched.leave(50_000, bay=1)
    assert watched.read_only_state.is_read_only
    assert await watched.add(2) is Status.READ_ONLY
    watched = await Watched(2).start(LIMITS._replace(read_only_on_any_full=False))
    assert await watched.add(1) is Status.OK
    await watched.leave(50_000, bay=1)
    assert not watched.read_only_state.is_read_only
    assert watched.rack.metrics.gauges["writable_directories"]() == 1
    assert await watched.add(1, 1) is Status.READ_ONLY
    assert await watched.add(3) is Status.OK
    await watched.leave(50_000, bay=0)
    assert watched.read_only_state.reasons == ["/0 is full", "/1 is full"]


async def test_a_failed_directory_makes_read_only_for_good() -> None:
    watched = await Watched(2).start()
    watched.rack.bays[1].volume.fail_syncs = 1
    assert await watched.add(1) is Status.IO_ERROR
    await watched.read_only_state.look()
    assert watched.read_only_state.reasons == ["the disk of /1 failed"]
    assert await watched.add(2) is Status.READ_ONLY
    assert await watched.add(2, recovery=True) is Status.OK


async def test_damage_makes_read_only_for_good() -> None:
    watched = Watched()
    await watched.rack.start()
    for entry in range(2):
        await watched.add(7, entry)
    await settle()
    bay = watched.rack.bays[0]
    bay.contents.wipe()
    bay.volume.files["log/0000000001.log"].rot(100, 1)
    await watched.start()
    assert "it is unknown which" in watched.read_only_state.reasons[0]
    watched.read_only_state.force(False)
    assert await watched.add(7, 5) is Status.READ_ONLY
    assert await watched.add(7, 5, recovery=True) is Status.OK


async def test_a_group_that_found_no_space_makes_it_look_at_once() -> None:
    watched = await Watched().start()
    watched.read_only_state.start()
    volume = watched.rack.bays[0].volume
    volume.capacity_bytes = volume.used_bytes + 10
    assert await watched.add(7) is Status.IO_ERROR
    await settle()
    assert watched.told == [False, True]
    volume.capacity_bytes = CAPACITY
    watched.read_only_state.look_soon()
    await settle()
    assert watched.told == [False, True, False]
    assert await watched.add(7) is Status.OK
    await watched.read_only_state.stop()


async def test_a_group_that_found_no_space_is_enough_however_much_is_left() -> None:
    """Between the reserve and what a group needs no add succeeds, so writers must know."""
    watched = await Watched().start(
        LIMITS._replace(space=SpaceLimits(1.0, 1.0, 1.0, 1000, 3000), priority_free_bytes_min=0)
    )
    watched.read_only_state.start()
    volume = watched.rack.bays[0].volume
    volume.capacity_bytes = volume.used_bytes + 2000
    await watched.read_only_state.look()
    assert not watched.read_only_state.is_read_only
    assert await watched.rack.status(add(7, 0, bytes(2500))) is Status.IO_ERROR
    await settle()
    assert watched.read_only_state.is_read_only
    await watched.read_only_state.look()
    assert watched.read_only_state.is_read_only, "until a group fits again"
    volume.capacity_bytes = volume.used_bytes + 3500
    await watched.read_only_state.look()
    assert not watched.read_only_state.is_read_only
    assert await watched.rack.status(add(7, 0, bytes(2500))) is Status.OK
    await watched.read_only_state.stop()


async def test_looks_regularly() -> None:
    watched = await Watched().start(LIMITS._replace(check_interval_s=0.01))
    watched.read_only_state.start()
    volume = watched.rack.bays[0].volume
    volume.used_bytes += volume.free_bytes - 5000
    async with asyncio.timeout(5):
        while not watched.read_only_state.is_read_only:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await watched.read_only_state.stop()


async def test_a_disk_that_cannot_be_asked_changes_nothing(monkeypatch, caplog) -> None:
    watched = await Watched().start()

    def fail() -> None:
        raise OSError("no such device")

    monkeypatch.setattr(watched.rack.bays[0].disk, "usage", fail)
    await watched.read_only_state.look()
    assert "disk.no_usage" in caplog.text
    assert not watched.read_only_state.is_read_only


@pytest.mark.parametrize("count", [1, 3])
async def test_the_gauge_counts_directories_with_room(count: int) -> None:
    watched = await Watched(count).start()
    assert watched.rack.metrics.gauges["writable_directories"]() == count

"""Adds while the open group is full: who waits, and what becomes of them."""

from __future__ import annotations

from client.wire.bookkeeper.messages import AddRequest, Status
from tests.fakes.bookie_box import LIMITS, BookieBox, add, fence, payload_of, read, settle

HOT, LIGHT = "hot", "light"


class Crowd:
    """Connections that add to one bookie, whose groups have room for two entries of 1,000 bytes and
    are held by the disk."""

    def __init__(self) -> None:
        self.box = BookieBox(limits=LIMITS._replace(group_bytes_max=2200))
        self.box.disk.hold = True
        self.told: dict[tuple[int, int], Status] = {}

    def add(self, connection: str, request: AddRequest) -> None:
        """Add over a connection."""
        key = (request.ledger_id, request.entry_id)
        self.box.storage.add(request, lambda status: self.told.__setitem__(key, status), connection)

    async def group(self) -> list[tuple[int, int]]:
        """Let the disk finish a group; return what was answered by that."""
        before = set(self.told)
        self.box.disk.release()
        await settle()
        return sorted(set(self.told) - before)


async def crowd(adds: int = 8) -> Crowd:
    """A ledger of which many adds wait: two are in flight, two in the open group."""
    it = Crowd()
    for entry in range(2):
        it.add(HOT, add(7, entry, bytes(1000)))
    await settle()
    for entry in range(2, adds):
        it.add(HOT, add(7, entry, bytes(1000)))
    return it


async def test_a_group_has_a_limit_and_the_others_follow_in_order() -> None:
    it = await crowd()
    assert it.box.storage.pending.turns.count == 4
    groups = [await it.group() for _ in range(4)]
    assert groups == [[(7, 2 * n), (7, 2 * n + 1)] for n in range(4)]
    assert set(it.told.values()) == {Status.OK}
    await settle()
    assert it.box.backlog.bytes == 0
    assert it.box.metrics.turn_wait_seconds.all.count == 4
    assert payload_of(7, (await it.box.call(read(7, 7))).entry) == bytes(1000)


async def test_the_next_group_is_made_while_the_disk_writes() -> None:
    it = Crowd()
    for entry in range(6):
        it.add(HOT, add(7, entry, bytes(1000)))
    await settle()
    assert it.box.storage.writer.commit.open.entry_bytes > 2000, "the disk will not wait for it"
    assert it.box.storage.pending.turns.count == 2


async def test_who_adds_little_waits_for_the_group_in_flight_and_its_own() -> None:
    it = await crowd(adds=30)
    it.add(LIGHT, add(8, 0))
    await it.group()
    assert (8, 0) in await it.group()


async def test_it_is_the_same_for_another_ledger_of_the_hot_connection() -> None:
    it = await crowd(adds=30)
    it.add(HOT, add(8, 0))
    await it.group()
    assert (8, 0) in await it.group()


async def test_a_run_stops_where_the_group_is_full() -> None:
    box = BookieBox(limits=LIMITS._replace(group_bytes_max=2200))
    box.disk.hold = True
    told: list[Status] = []
    run = [add(7, entry, bytes(1000)) for entry in range(4)]
    box.storage.add(run[0], told.append)
    assert box.storage.add_run(run[1:], told.append) == 1
    assert box.storage.add_run(run[2:], told.append) == 0


async def test_a_fence_comes_before_what_waits() -> None:
    it = await crowd()
    fenced = it.box.send(fence(7))
    for _ in range(5):
        await it.group()
    assert (await fenced).status is Status.OK
    assert [it.told[7, entry] for entry in range(8)] == 4 * [Status.OK] + 4 * [Status.FENCED]
    assert it.box.backlog.bytes == 0


async def test_a_disk_that_is_full_refuses_what_waits() -> None:
    it = await crowd()
    it.box.disk.hold = False
    it.box.volume.capacity_bytes = it.box.volume.used_bytes
    it.box.disk.release()
    await settle()
    refused = {Status.IO_ERROR, Status.READ_ONLY}
    assert len(it.told) == 8 and set(it.told.values()) <= refused
    assert it.box.backlog.bytes == it.box.storage.pending.turns.count == 0


async def test_a_disk_that_failed_answers_what_waits() -> None:
    it = await crowd()
    it.box.volume.fail_syncs = 1
    it.box.disk.release()
    await settle()
    assert len(it.told) == 8 and set(it.told.values()) == {Status.IO_ERROR}
    assert it.box.backlog.bytes == 0 and not it.box.backlog.waiting


async def test_a_deferred_add_waits_too_and_is_answered_when_it_is_in_a_group() -> None:
    it = await crowd(adds=5)
    it.add(LIGHT, add(9, 0, bytes(1000), deferred_sync=True))
    assert (9, 0) not in it.told
    assert (9, 0) in await it.group()


async def test_draining_waits_for_the_line() -> None:
    it = await crowd()
    it.box.disk.hold = False
    it.box.disk.release()
    await it.box.storage.close()
    assert len(it.told) == 8

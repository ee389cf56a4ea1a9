"""Adds while the open group is full: who waits, and what becomes of them."""

from __future__ import annotations

from bookie.storage.core.group_commit import Group
from client.ids import LedgerId
from client.wire.bookkeeper.messages import AddRequest, Status
from tests.fakes.bookie_box import LIMITS, BookieBox, add, fence, payload_of, read, settle

HOT, LIGHT = "hot", "light"


def earn(box: BookieBox, connection: str, ledger: int) -> None:
    """A ledger has all its credit: little was added to it some groups ago."""
    long_ago = Group(box.storage.writer.commit.open.number - 8)
    box.storage.pending.turns.on_little(connection, LedgerId(ledger), 0, 0, long_ago)


def somebody_adds_little(box: BookieBox) -> None:
    """Of late, so that groups are small."""
    storage = box.storage
    earn(box, LIGHT, 1)
    storage.pending.turns.on_little(LIGHT, LedgerId(1), 1, 0, storage.writer.commit.open)


class Crowd:
    """Connections that add to one bookie, whose groups have room for two entries of 1,000 bytes and
    are held by the disk."""

    def __init__(self) -> None:
        self.box = BookieBox(limits=LIMITS._replace(group_bytes_max=2200))
        somebody_adds_little(self.box)
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
    somebody_adds_little(box)
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


class Alone:
    """A connection that adds to one ledger of a bookie whose groups have room for two entries of
    1,000 bytes when somebody adds little beside it; the light ledger has an entry that is durable,
    and credit.
    """

    async def start(self, *, has_credit: bool = True) -> Alone:
        self.box = BookieBox(limits=LIMITS._replace(group_bytes_max=2200))
        self.told: list[Status] = []
        self.add(8, 0, 10)
        await settle()
        if has_credit:
            earn(self.box, "of 8", 8)
        self.box.disk.hold = True
        for entry in range(4):
            self.add(7, entry, 1000)
        await settle()
        assert self.box.storage.writer.commit.in_flight is not None
        return self

    def add(self, ledger: int, entry: int, size: int) -> None:
        self.box.storage.add(add(ledger, entry, bytes(size)), self.told.append, f"of {ledger}")

    @property
    def waits(self) -> bool:
        """Whether one more of the hot ledger waits in line, when three are in the open group."""
        for entry in range(4, 8):
            self.add(7, entry, 1000)
        return bool(self.box.storage.pending.turns.count)


async def test_alone_a_group_has_eight_times_as_much() -> None:
    assert not (await Alone().start()).waits


async def test_somebody_who_adds_little_makes_groups_small() -> None:
    it = await Alone().start()
    it.add(8, 1, 10)
    assert it.waits


async def test_not_before_it_has_earned_that() -> None:
    it = await Alone().start(has_credit=False)
    it.add(8, 1, 10)
    assert not it.waits


async def test_so_does_an_add_in_a_run_of_others() -> None:
    it = await Alone().start()
    run = [add(7, 4, bytes(10)), add(8, 1, bytes(10))]
    assert it.box.storage.add_run(run, it.told.append) == 2
    assert it.waits


async def test_not_with_a_large_entry() -> None:
    it = await Alone().start()
    it.add(8, 1, 200)
    assert not it.waits


async def test_not_with_the_first_entry_of_a_ledger() -> None:
    it = await Alone().start()
    it.add(9, 0, 10)
    assert not it.waits


async def test_not_while_more_of_its_ledger_is_on_its_way() -> None:
    it = await Alone().start()
    it.add(7, 8, 10)
    assert not it.waits

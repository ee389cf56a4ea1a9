"""Several directories: a ledger is in one of them, and one that fails takes no other along."""

from __future__ import annotations

import pytest

from bookie.errors import LogIncomplete
from bookie.storage.core.disk_space import AcceptedAdds
from client.ids import LedgerId
from client.wire.bookkeeper.messages import BookieInfoRequest, ListEntriesRequest, Status
from tests.fakes.bookie_box import add, fence, payload_of, read, settle
from tests.fakes.ledger_directories import DirectoryRack


async def rack(count: int = 3) -> DirectoryRack:
    rack = DirectoryRack(count)
    await rack.start()
    return rack


def ledgers_of(rack: DirectoryRack) -> list[list[int]]:
    return [
        list(ledger_directory.storage.ledgers.ids())
        for ledger_directory in rack.ledger_directories.directories
    ]


async def test_ledgers_are_spread_and_stay_where_they_are() -> None:
    machine = await rack()
    for ledger in range(9):
        for entry in range(2):
            assert await machine.status(add(ledger, entry, b"%d" % ledger)) is Status.OK
    assert ledgers_of(machine) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert machine.ledger_directories.ledger_ids == list(range(9))
    await machine.ledger_directories.close()
    await machine.start()
    for ledger in range(9):
        assert payload_of(ledger, (await machine.call(read(ledger, 1))).entry) == b"%d" % ledger
        assert await machine.status(add(ledger, 2)) is Status.OK
        assert (await machine.call(ListEntriesRequest(LedgerId(ledger)))).status is Status.OK
    assert ledgers_of(machine) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


async def test_a_fence_and_an_add_of_an_unknown_ledger_meet_in_one_directory() -> None:
    """Whatever changes in between: else the add would not see the fence (4701)."""
    machine = await rack()
    first, *others = machine.ledger_directories.directories
    assert await machine.status(fence(3)) is Status.NO_ENTRY
    first.storage.accept = AcceptedAdds.NONE
    assert await machine.status(add(3, 0)) is Status.READ_ONLY
    first.storage.accept = AcceptedAdds.ALL
    assert await machine.status(add(3, 0)) is Status.FENCED
    for ledger_directory in others:
        assert ledger_directory.storage.ledgers.ids() == []


async def test_a_deleted_ledger_is_remembered_where_it_was() -> None:
    machine = await rack()
    await machine.call(fence(3))
    assert await machine.ledger_directories.delete(LedgerId(3), 1000) is Status.OK
    machine.ledger_directories.directories[0].storage.accept = AcceptedAdds.PRIORITY
    assert await machine.status(add(3, 0)) is Status.READ_ONLY
    machine.ledger_directories.directories[0].storage.accept = AcceptedAdds.ALL
    assert await machine.status(add(3, 0)) is Status.FENCED


async def test_new_ledgers_avoid_a_directory_without_room() -> None:
    machine = await rack()
    machine.ledger_directories.directories[1].storage.accept = AcceptedAdds.PRIORITY
    for ledger in range(6):
        assert await machine.status(add(ledger, 0)) is Status.OK
    assert ledgers_of(machine) == [[0, 2, 4], [], [1, 3, 5]]


async def test_a_failed_disk_takes_its_ledgers_and_no_others() -> None:
    machine = await rack()
    for ledger in range(3):
        await machine.call(add(ledger, 0, b"kept"))
    machine.bays[1].volume.fail_syncs = 1
    assert await machine.status(add(1, 1)) is Status.IO_ERROR
    assert machine.failed == ["/1"]
    assert await machine.status(add(1, 2)) is Status.IO_ERROR
    assert await machine.status(fence(1)) is Status.IO_ERROR
    for ledger in (0, 2):
        assert await machine.status(add(ledger, 1)) is Status.OK
        assert await machine.status(fence(ledger)) is Status.OK
    # What was durable before can still be read, and new ledgers go elsewhere.
    assert payload_of(1, (await machine.call(read(1, 0))).entry) == b"kept"
    for ledger in (10, 11, 12, 13):
        assert await machine.status(add(ledger, 0)) is Status.OK
    assert ledgers_of(machine)[1] == [1]
    assert machine.ledger_directories.ledger_ids == [0, 2, 10, 11, 12, 13]
    await settle()
    assert machine.ledger_directories.backlog.bytes == 0


async def test_with_damage_somewhere_an_unknown_ledger_is_nowhere_denied() -> None:
    machine = await rack()
    for ledger in range(3):
        await machine.call(add(ledger, 0))
    await settle()
    bay = machine.bays[2]
    bay.contents.wipe()
    bay.volume.files["log/0000000001.log"].rot(100, 1)
    await machine.start()
    assert [
        ledger_directory.storage.has_damage
        for ledger_directory in machine.ledger_directories.directories
    ] == [False, False, True]
    for unknown in (30, 31, 32):
        assert await machine.status(read(unknown, 0)) is Status.IO_ERROR
        assert await machine.status(add(unknown, 0)) is Status.READ_ONLY
    assert await machine.status(read(0, 5)) is Status.NO_ENTRY
    assert await machine.status(read(1, 0)) is Status.OK


async def test_a_ledger_in_two_directories_is_a_refusal() -> None:
    machine = await rack()
    await machine.call(add(0, 0))
    await machine.ledger_directories.close()
    machine.bays[1] = machine.bays[0]
    with pytest.raises(LogIncomplete, match="ledger 0 is both in /0 and in /1"):
        await machine.start()


async def test_space_is_that_of_all_disks() -> None:
    machine = await rack()
    for bay in machine.bays:
        bay.volume.capacity_bytes = 1 << 20
    answer = await machine.call(BookieInfoRequest(True, True))
    assert answer.total_capacity == 3 << 20
    assert answer.free_space == sum(bay.volume.free_bytes for bay in machine.bays)

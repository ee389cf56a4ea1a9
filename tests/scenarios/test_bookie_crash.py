"""Scenario 17 and its relatives: crashes in the middle of a log write, and damaged bytes.

What was acknowledged is there. What was not may be there, but never half of it. A torn end is
cut off; a damaged record is an error, never "no such entry".
"""

from __future__ import annotations

import asyncio

import pytest

from bookie.storage.core.append_log import RECORD_HEADER_BYTES, file_name
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import BookieBox, add, envelope, fence, payload_of, read, settle

L7 = LedgerId(7)


async def with_group_in_flight(seed: int = 1) -> tuple[BookieBox, list[asyncio.Future]]:
    """Entries 0 to 4 acknowledged; 5 to 9 written to the kernel, their sync still running."""
    box = BookieBox(seed)
    for n in range(5):
        assert await box.status(add(7, n, b"acknowledged %d" % n)) is Status.OK
    await settle()
    box.disk.hold = True
    answers = [box.send(add(7, n, b"in flight %d" % n)) for n in range(5, 10)]
    await settle()
    box.disk.write_without_sync()
    return box, answers


async def check(box: BookieBox) -> int:
    """Check everything and return how many of the entries in flight survived: a prefix."""
    for n in range(5):
        found = await box.call(read(7, n))
        assert payload_of(7, found.entry) == b"acknowledged %d" % n
    statuses = [await box.status(read(7, n)) for n in range(5, 11)]
    survived = statuses.index(Status.NO_ENTRY)
    assert statuses == [Status.OK] * survived + [Status.NO_ENTRY] * (6 - survived)
    for n in range(5, 5 + survived):
        found = await box.call(read(7, n))
        assert payload_of(7, found.entry) == b"in flight %d" % n
    last = await box.call(read(7, -1))
    assert last.entry[8:16] == (4 + survived).to_bytes(8, "big")
    return survived


async def test_power_loss_in_the_middle_of_a_write() -> None:
    seen = set()
    for seed in range(60):
        box, answers = await with_group_in_flight(seed)
        box.lose_power()
        box.start()
        assert not any(answer.done() for answer in answers)
        seen.add(await check(box))
        assert await box.status(add(7, 20, b"goes on")) is Status.OK
        box.lose_power()
        box.start()
        assert payload_of(7, (await box.call(read(7, 20))).entry) == b"goes on"
    assert len(seen) > 2, "the crashes must differ"


async def test_kill_at_every_byte_of_a_write() -> None:
    box, _ = await with_group_in_flight()
    whole = bytes(box.volume.files[file_name(1)].cached)
    start = whole.index(envelope(7, 5, b"in flight 5")) - RECORD_HEADER_BYTES
    record = RECORD_HEADER_BYTES + len(envelope(7, 5, b"in flight 5"))
    for size in range(start, len(whole) + 1, 7):
        box, _ = await with_group_in_flight()
        box.kill()
        box.volume.files[file_name(1)].truncate(size)
        box.start()
        assert await check(box) == (size - start) // record


async def test_a_torn_sector_inside_the_group_is_not_mistaken_for_damage() -> None:
    box, _ = await with_group_in_flight()
    box.kill()
    file = box.volume.files[file_name(1)]
    file.write(bytes(file.cached).index(b"in flight 6"), bytes(11))
    box.start()
    assert await check(box) == 1
    assert not box.storage.has_damage


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("offset", [0, 5, 9, 17, 30, 32, 40, 60, 70])
async def test_a_flipped_bit_is_an_error_and_never_an_absence(restart: bool, offset: int) -> None:
    box = BookieBox()
    for n in range(5):
        await box.call(add(7, n, b"some bytes to hit"))
    await settle()
    location = box.index.places.location(L7, EntryId(2))
    assert location is not None
    if restart:
        await box.storage.close()
    file = box.volume.files[file_name(1)]
    for content in (file.cached, file.durable):
        content[location.position + offset] ^= 0x04
    if restart:
        box.restart()
    for request in (read(7, 2), fence(7, 2)):
        assert await box.status(request) is Status.IO_ERROR
    for n in (0, 1, 3, 4, -1):
        assert await box.status(read(7, n)) is Status.OK


async def test_a_flipped_bit_in_the_newest_group_is_no_torn_end_after_kill() -> None:
    """The index knows that this record was durable, so it is damage, and nothing is cut off."""
    box = BookieBox()
    for n in range(3):
        await box.call(add(7, n, b"some bytes to hit"))
    await settle()
    location = box.index.places.location(L7, EntryId(2))
    assert location is not None
    size = len(box.volume.files[file_name(1)].cached)
    for content in (box.volume.files[file_name(1)].cached, box.volume.files[file_name(1)].durable):
        content[location.position + 40] ^= 0x04
    box.restart()
    assert await box.status(read(7, 2)) is Status.IO_ERROR
    assert len(box.volume.files[file_name(1)].cached) == size


async def test_damage_without_an_index_never_denies_an_entry() -> None:
    """Nobody knows what the damaged record was: any entry, of any ledger, a fence, a key."""
    box = BookieBox()
    for n in range(5):
        await box.call(add(7, n, b"some bytes to hit"))
    await box.call(fence(8))
    await settle()
    location = box.index.places.location(L7, EntryId(2))
    assert location is not None
    box.kill()
    box.index_store.wipe()
    file = box.volume.files[file_name(1)]
    for content in (file.cached, file.durable):
        content[location.position + 40] ^= 0x04
    box.start()
    for wanted in (read(7, 2), read(7, 99), read(9, 0), fence(7, 2), fence(10)):
        assert await box.status(wanted) is Status.IO_ERROR
    for n in (0, 1, 3, 4):
        assert await box.status(read(7, n)) is Status.OK
    # The lost record could have been the fence of any of these.
    for ledger in (7, 8, 9, 11):
        assert await box.status(add(ledger, 50)) in (Status.READ_ONLY, Status.FENCED)
    assert await box.status(add(7, 50, recovery=True)) is Status.OK


async def test_duplicates_and_out_of_order_adds_survive_a_crash() -> None:
    box = BookieBox()
    for n in (4, 2, 0, 3, 2, 4, 1):
        assert await box.status(add(7, n, b"payload %d" % n, lac=-1)) is Status.OK
    # Recovery writes the same payload with its own last add confirmed.
    assert await box.status(add(7, 3, b"payload 3", lac=2, recovery=True)) is Status.OK
    for _ in range(2):
        for n in range(5):
            found = await box.call(read(7, n))
            assert payload_of(7, found.entry) == b"payload %d" % n
        assert (await box.call(read(7, 3))).entry[16:24] == (2).to_bytes(8, "big")
        box.lose_power()
        box.start()


async def test_disk_full_in_the_middle_of_a_group() -> None:
    """Scenario 13: the group fails, the bookie stays, nothing acknowledged is lost."""
    for room in range(100, 1500, 150):
        box = BookieBox()
        for n in range(3):
            assert await box.status(add(7, n, b"kept %d" % n)) is Status.OK
        box.volume.capacity_bytes = box.volume.used_bytes + room
        answers = [box.send(add(7, n, bytes(400))) for n in range(3, 7)]
        await settle()
        assert {answer.result().status for answer in answers} == {Status.IO_ERROR}
        box.volume.capacity_bytes = 1 << 40
        assert await box.status(add(7, 3, b"later")) is Status.OK
        box.lose_power()
        box.start()
        for n in range(3):
            assert payload_of(7, (await box.call(read(7, n))).entry) == b"kept %d" % n
        assert payload_of(7, (await box.call(read(7, 3))).entry) == b"later"
        assert await box.status(read(7, 4)) is Status.NO_ENTRY
        assert box.failures == []
        assert not box.storage.has_damage

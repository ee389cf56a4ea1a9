"""Adds, fences, explicit LACs and forces: what is answered when, and what a failure does."""

from __future__ import annotations

import asyncio
import struct

import pytest

from bookie.errors import CorruptIndex, DiskFailed
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import (
    ForceLedgerRequest,
    ReadLacRequest,
    Status,
    WriteLacRequest,
)
from tests.fakes.bookie_box import (
    KEY,
    LIMITS,
    BookieBox,
    add,
    envelope,
    fence,
    payload_of,
    read,
    settle,
)

OTHER_KEY = master_key(b"other")


def write_lac(ledger: int, lac: int, key: bytes = KEY) -> WriteLacRequest:
    codec = EntryCodec(LedgerId(ledger), DigestType.CRC32C, b"")
    return WriteLacRequest(LedgerId(ledger), EntryId(lac), key, codec.seal_lac(EntryId(lac)))


async def test_an_add_is_answered_after_its_sync_but_readable_before() -> None:
    box = BookieBox()
    box.disk.hold = True
    answer = box.send(add(7, 0, b"hello"))
    await settle()
    assert not answer.done()
    found = await box.call(read(7, 0))
    assert payload_of(7, found.entry) == b"hello"
    box.disk.release()
    assert (await answer).status is Status.OK


async def test_adds_that_arrive_together_share_a_sync() -> None:
    box = BookieBox()
    answers = [box.send(add(7, n)) for n in range(50)]
    await settle()
    assert all(answer.result().status is Status.OK for answer in answers)
    assert box.metrics.groups == 1


async def test_adds_that_arrive_during_a_sync_share_the_next() -> None:
    box = BookieBox()
    box.disk.hold = True
    first = box.send(add(7, 0))
    await settle()
    others = [box.send(add(7, n)) for n in range(1, 10)]
    await settle()
    assert len(box.disk.flying) == 1
    box.disk.release()
    await settle()
    assert first.done()
    assert not any(answer.done() for answer in others)
    assert len(box.disk.flying) == 1
    box.disk.release()
    await settle()
    assert all(answer.done() for answer in others)


async def test_deferred_sync_is_answered_at_once_and_forced_later() -> None:
    box = BookieBox()
    box.disk.hold = True
    answer = box.send(add(7, 0, deferred_sync=True))
    assert answer.result().status is Status.OK
    force = box.send(ForceLedgerRequest(LedgerId(7)))
    await settle()
    assert not force.done()
    box.disk.release()
    assert (await force).status is Status.OK
    assert await box.status(ForceLedgerRequest(LedgerId(7))) is Status.OK
    assert await box.status(ForceLedgerRequest(LedgerId(99))) is Status.OK


async def test_a_force_waits_for_the_group_in_flight() -> None:
    box = BookieBox()
    box.disk.hold = True
    box.send(add(7, 0))
    await settle()
    force = box.send(ForceLedgerRequest(LedgerId(7)))
    await settle()
    assert not force.done()
    box.disk.release()
    assert (await force).status is Status.OK


async def test_the_first_key_wins() -> None:
    box = BookieBox()
    assert await box.status(add(7, 0)) is Status.OK
    assert await box.status(add(7, 1, key=OTHER_KEY)) is Status.UNAUTHORIZED
    assert await box.status(add(7, 1, key=OTHER_KEY, recovery=True)) is Status.UNAUTHORIZED
    assert await box.status(fence(7, key=OTHER_KEY)) is Status.UNAUTHORIZED
    assert await box.status(write_lac(7, 0, OTHER_KEY)) is Status.UNAUTHORIZED
    assert await box.status(add(7, 1)) is Status.OK
    box.restart()
    assert await box.status(add(7, 2, key=OTHER_KEY)) is Status.UNAUTHORIZED


async def test_a_fence_key_is_the_first_key_too() -> None:
    box = BookieBox()
    assert await box.status(fence(7)) is Status.NO_ENTRY
    assert await box.status(add(7, 0, key=OTHER_KEY, recovery=True)) is Status.UNAUTHORIZED


async def test_a_fence_stops_adds_but_not_recovery() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    assert await box.status(fence(7)) is Status.OK
    assert await box.status(add(7, 1)) is Status.FENCED
    assert await box.status(add(7, 1, recovery=True)) is Status.OK
    assert payload_of(7, (await box.call(read(7, 1))).entry) == b"payload"


async def test_a_fence_holds_from_the_moment_it_is_accepted() -> None:
    box = BookieBox()
    box.disk.hold = True
    before = box.send(add(7, 0))
    fencing = box.send(fence(7))
    after = box.send(add(7, 1))
    assert after.result().status is Status.FENCED
    await settle()
    assert not before.done()
    assert not fencing.done()
    box.disk.release()
    await settle()
    assert before.result().status is Status.OK
    found = fencing.result()
    assert found.status is Status.OK
    assert found.entry[:16] == envelope(7, 0)[:16]


async def test_a_second_fence_waits_for_the_record_of_the_first() -> None:
    box = BookieBox()
    box.disk.hold = True
    box.send(add(7, 0))
    await settle()
    first = box.send(fence(7))
    second = box.send(fence(7))
    await settle()
    assert not first.done()
    assert not second.done()
    box.disk.release()
    await settle()
    third = box.send(fence(7))
    await settle()
    assert not first.done()
    assert not third.done()
    box.disk.release()
    await settle()
    assert first.done()
    assert second.done()
    assert third.done()
    assert await box.status(fence(7)) is Status.OK
    assert not box.disk.flying


@pytest.mark.parametrize(
    "bad",
    [
        add(7, 0)._replace(entry=bytes(31)),
        add(7, 0)._replace(ledger_id=LedgerId(8)),
        add(7, 0)._replace(entry_id=EntryId(1)),
        add(7, -5),
        add(-7, 0),
        add(7, 0, key=b""),
        add(7, 0, key=bytes(256)),
        fence(-7),
        fence(7, key=b""),
        write_lac(7, 0)._replace(packet=bytes(15)),
        write_lac(7, 0)._replace(ledger_id=LedgerId(8)),
    ],
)
async def test_requests_that_make_no_sense_change_nothing(bad) -> None:
    box = BookieBox()
    assert await box.status(bad) is Status.BAD_REQUEST
    assert await box.status(read(7, 0)) is Status.NO_LEDGER
    assert await box.status(read(-7, 0)) is Status.NO_LEDGER
    assert "log/0000000001.log" not in box.volume.files


async def test_duplicates_and_any_order_are_accepted_and_the_last_write_wins() -> None:
    box = BookieBox()
    for entry, payload in ((5, b"five"), (0, b"zero"), (3, b"three"), (0, b"again"), (5, b"5")):
        assert await box.status(add(7, entry, payload)) is Status.OK
    for _ in range(2):
        for entry, payload in ((0, b"again"), (3, b"three"), (5, b"5"), (-1, b"5")):
            found = await box.call(read(7, entry))
            assert payload_of(7, found.entry) == payload
        assert await box.status(read(7, 1)) is Status.NO_ENTRY
        box.restart()


async def test_explicit_lac_is_durable_and_the_newest_wins() -> None:
    box = BookieBox()
    assert await box.status(ReadLacRequest(LedgerId(7))) is Status.NO_LEDGER
    assert await box.status(write_lac(7, 4)) is Status.OK
    assert await box.status(write_lac(7, 2)) is Status.OK
    for crash in (box.restart, box.lose_power):
        crash()
        box.start()
        found = await box.call(ReadLacRequest(LedgerId(7)))
        assert found.status is Status.OK
        assert found.last_entry is None
        assert struct.unpack_from(">qq", found.lac_packet) == (7, 4)


async def test_a_full_disk_fails_the_group_and_the_bookie_goes_on() -> None:
    box = BookieBox()
    assert await box.status(add(7, 0, b"kept")) is Status.OK
    box.volume.capacity_bytes = box.volume.used_bytes + 500
    answers = [box.send(add(7, n, bytes(400))) for n in (1, 2)]
    answers.append(box.send(add(8, 0, bytes(400))))
    await settle()
    assert [answer.result().status for answer in answers] == [Status.IO_ERROR] * 3
    assert await box.status(read(7, 1)) is Status.NO_ENTRY
    assert (await box.call(read(7, -1))).status is Status.OK
    assert payload_of(7, (await box.call(read(7, -1))).entry) == b"kept"
    assert await box.status(fence(9)) is Status.NO_ENTRY
    box.volume.capacity_bytes = 1 << 40
    assert await box.status(add(8, 0, b"now")) is Status.OK
    assert await box.status(add(7, 1, b"now")) is Status.OK
    assert box.failures == []
    box.lose_power()
    box.start()
    assert payload_of(7, (await box.call(read(7, 0))).entry) == b"kept"
    assert payload_of(7, (await box.call(read(7, 1))).entry) == b"now"
    assert payload_of(8, (await box.call(read(8, 0))).entry) == b"now"
    assert await box.status(add(8, 1, key=OTHER_KEY)) is Status.UNAUTHORIZED
    assert await box.status(add(9, 0)) is Status.FENCED
    assert box.checkpoint.damage == ()


async def test_a_full_disk_fails_what_was_accepted_behind_the_group_too() -> None:
    box = BookieBox()
    box.disk.hold = True
    box.volume.capacity_bytes = box.volume.used_bytes + 100
    first = box.send(add(7, 0, bytes(400)))
    await settle()
    second = box.send(add(7, 1, b"small"))
    fencing = box.send(fence(7))
    box.disk.release()
    await settle()
    assert first.result().status is second.result().status is Status.IO_ERROR
    assert fencing.result().status is Status.IO_ERROR
    # The fence stays in force, and is recorded when somebody asks again.
    assert await box.status(add(7, 2)) is Status.FENCED
    box.disk.hold = False
    box.volume.capacity_bytes = 1 << 40
    assert await box.status(fence(7)) is Status.NO_ENTRY
    box.lose_power()
    box.start()
    assert await box.status(add(7, 2)) is Status.FENCED


async def test_a_copy_that_found_no_space_does_not_hide_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recovery writes again what is durable here already, and not in the index yet.

    The simulation found it: the refused copy took the good one along, the entry was denied, and
    a recovery could have closed the ledger in front of it.
    """
    box = BookieBox(limits=LIMITS._replace(cache_bytes_max=0))
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(box.disk, "index_job", lambda job: loop.create_future())
    assert await box.status(add(7, 0, b"acknowledged")) is Status.OK
    box.volume.capacity_bytes = box.volume.used_bytes
    box.disk.hold = True
    again = [box.send(add(7, 0, b"acknowledged", recovery=True))]
    await settle()
    again += [box.send(add(7, 0, b"acknowledged", recovery=True)) for _ in range(2)]
    box.disk.release()
    await settle()
    assert [answer.result().status for answer in again] == [Status.IO_ERROR] * 3
    assert payload_of(7, (await box.call(read(7, 0))).entry) == b"acknowledged"
    assert payload_of(7, (await box.call(read(7, -1))).entry) == b"acknowledged"


async def test_ordinary_adds_rest_for_a_while_after_the_disk_was_full() -> None:
    box = BookieBox(limits=LIMITS._replace(disk_full_retry_s=3600.0))
    box.volume.capacity_bytes = box.volume.used_bytes
    assert await box.status(add(7, 0)) is Status.IO_ERROR
    assert box.storage.full_disk.is_full()
    box.volume.capacity_bytes = 1 << 40
    assert await box.status(add(7, 0)) is Status.READ_ONLY
    assert await box.status(write_lac(7, 0)) is Status.READ_ONLY
    assert await box.status(add(7, 0, recovery=True)) is Status.OK
    assert await box.status(fence(8)) is Status.NO_ENTRY


async def test_a_force_does_not_vouch_for_deferred_adds_that_were_lost() -> None:
    box = BookieBox()
    box.volume.capacity_bytes = box.volume.used_bytes
    assert await box.status(add(7, 0, deferred_sync=True)) is Status.OK
    await settle()
    box.volume.capacity_bytes = 1 << 40
    assert await box.status(ForceLedgerRequest(LedgerId(7))) is Status.IO_ERROR
    assert await box.status(ForceLedgerRequest(LedgerId(8))) is Status.OK


async def test_a_failed_sync_ends_the_bookie_and_is_never_retried() -> None:
    box = BookieBox()
    assert await box.status(add(7, 0)) is Status.OK
    box.volume.fail_syncs = 1
    first = box.send(add(7, 1))
    await settle()
    assert first.result().status is Status.IO_ERROR
    assert isinstance(box.failures[0], DiskFailed)
    groups = box.metrics.groups
    for request in (add(7, 2), fence(7), write_lac(7, 1), ForceLedgerRequest(LedgerId(7))):
        assert await box.status(request) is Status.IO_ERROR
    await settle()
    assert box.metrics.groups == groups
    assert len(box.failures) == 1
    await box.storage.close()


async def test_requests_behind_a_failed_sync_are_answered_once() -> None:
    box = BookieBox()
    box.disk.hold = True
    box.volume.fail_syncs = 1
    first = box.send(add(7, 0))
    await settle()
    second = box.send(add(7, 1))
    box.disk.release()
    await settle()
    assert first.result().status is second.result().status is Status.IO_ERROR


async def test_a_failing_index_ends_the_bookie() -> None:
    box = BookieBox()
    box.index_store.broken = True
    box.disk.hold = True
    answer = box.send(add(7, 0))
    await settle()
    box.disk.release()
    later = box.send(add(7, 1))
    await settle()
    assert answer.result().status is Status.OK
    assert isinstance(box.failures[0], CorruptIndex)
    assert later.result().status is Status.IO_ERROR
    box.disk.release()
    await settle()
    assert len(box.failures) == 1


async def test_pending_bytes_make_the_storage_busy_until_they_are_indexed() -> None:
    box = BookieBox(pending_bytes_max=1000)
    told: list[bool] = []
    box.backlog.on_change = lambda: told.append(box.backlog.is_over)
    box.disk.hold = True
    box.send(add(7, 0, bytes(600)))
    assert not box.backlog.is_over
    box.send(add(7, 1, bytes(600)))
    assert box.backlog.is_over
    await settle()
    assert told == [True]
    box.disk.release()
    await settle()
    assert not box.backlog.is_over
    assert told == [True, False]


async def test_close_waits_for_what_is_on_its_way() -> None:
    box = BookieBox()
    box.disk.hold = True
    answer = box.send(add(7, 0, b"last"))
    await settle()
    box.disk.hold = False
    box.disk.release()
    await box.storage.close()
    assert answer.result().status is Status.OK
    assert box.checkpoint.start.position > 100
    box.restart()
    assert payload_of(7, (await box.call(read(7, 0))).entry) == b"last"


async def test_gauges_follow_the_storage() -> None:
    box = BookieBox()
    box.disk.hold = True
    box.send(add(7, 0, b"x"))
    box.ledger_directories.publish(box.metrics)
    gauges = {name: value() for name, value in box.metrics.gauges.items()}
    assert gauges["ledgers"] == 1
    assert gauges["pending_bytes"] == gauges["cache_bytes"] == 37
    assert gauges["pending_entries"] == gauges["cache_entries"] == 1
    assert (gauges["open_group_requests"], gauges["groups_in_flight"]) == (1, 0)
    await settle()
    gauges = {name: value() for name, value in box.metrics.gauges.items()}
    assert (gauges["open_group_requests"], gauges["groups_in_flight"]) == (0, 1)
    assert gauges["pending_entries"] == 1
    box.disk.release()
    await settle()
    gauges = {name: value() for name, value in box.metrics.gauges.items()}
    assert gauges["groups_in_flight"] == gauges["pending_entries"] == 0
    assert gauges["damaged_ranges"] == gauges["failed_directories"] == 0

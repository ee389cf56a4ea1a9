"""What each operation answers, in which order it checks, and when a fence is answered."""

from __future__ import annotations

import asyncio

import pytest

from bookie.server.handlers import BatchLimits
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import (
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BookieInfoRequest,
    ErrorResponse,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    StartTlsRequest,
    Status,
    UnknownRequest,
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

L7 = LedgerId(7)
WARM = LIMITS._replace(cache_bytes_max=1 << 20)


def poll(previous_lac: int, timeout_ms: int | None = 5000, **fields) -> ReadRequest:
    asked = ReadRequest(L7, EntryId(-1), previous_lac=EntryId(previous_lac), timeout_ms=timeout_ms)
    return asked._replace(piggyback=True, **fields)


def batch(first: int, count_max: int = 0, size_max: int = 1 << 20, **fields) -> BatchReadRequest:
    return BatchReadRequest(L7, EntryId(first), 99, count_max, size_max, **fields)


async def filled(count: int = 5, size: int = 10) -> BookieBox:
    box = BookieBox()
    for n in range(count):
        await box.call(add(7, n, bytes(size), lac=n - 1))
    await settle()
    return box


async def test_adds_echo_their_ids() -> None:
    answer = await BookieBox().call(add(7, 3))
    assert answer == (Status.OK, 7, 3)


async def test_reads_tell_the_lac_and_echo_what_was_asked() -> None:
    box = await filled()
    found = await box.call(read(7, 2))
    assert (found.ledger_id, found.entry_id, found.max_lac) == (7, 2, 3)
    last = await box.call(read(7, -1))
    assert last.entry_id == -1
    assert last.entry[8:16] == (4).to_bytes(8, "big")
    fencing = await box.call(fence(7, 2))
    assert (fencing.status, fencing.max_lac) == (Status.OK, None)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (fence(7), Status.NO_ENTRY),  # a ledger never heard of
        (fence(7, 3), Status.NO_ENTRY),
        (batch(0, fence=True, master_key=KEY), Status.NO_ENTRY),
    ],
)
async def test_a_fence_is_answered_after_its_record_is_durable(request_, status) -> None:
    """Also when there is no entry, and no ledger: Apache answers those at once."""
    box = BookieBox()
    box.disk.hold = True
    answer = box.send(request_)
    await settle()
    assert not answer.done()
    box.disk.release()
    assert (await answer).status is status
    box.lose_power()
    box.start()
    assert await box.status(add(7, 0)) is Status.FENCED


@pytest.mark.parametrize(
    "request_", [fence(7, key=None), batch(0, fence=True), batch(0, fence=True, master_key=b"k")]
)
async def test_a_fence_needs_the_key(request_) -> None:
    box = await filled(1)
    assert await box.status(request_) is Status.UNAUTHORIZED
    assert await box.status(add(7, 1)) is Status.OK


async def test_refused_adds_are_counted() -> None:
    box = await filled(1)
    await box.call(add(7, 1, key=master_key(b"other")))
    assert box.metrics.refused_adds == 1
    assert box.metrics.fences == 0
    await box.call(fence(7))
    assert box.metrics.fences == 1


async def test_batch_read_ends_at_a_gap_or_a_limit() -> None:
    box = await filled(5)
    await box.call(add(7, 9))
    whole = await box.call(batch(0))
    assert (whole.status, whole.first_entry_id, whole.request_id) == (Status.OK, 0, 99)
    assert [bytes(entry) for entry in whole.entries] == [
        envelope(7, n, bytes(10), n - 1) for n in range(5)
    ]
    assert len((await box.call(batch(1, count_max=3))).entries) == 3
    size = len(whole.entries[0]) + 4
    assert len((await box.call(batch(0, size_max=36 + 2 * size))).entries) == 2
    assert len((await box.call(batch(0, size_max=36 + 3 * size - 1))).entries) == 2
    for size_max in (0, -1, 1):
        assert len((await box.call(batch(0, size_max=size_max))).entries) == 1


async def test_batch_read_of_an_absent_first_entry() -> None:
    box = await filled(1)
    absent = await box.call(batch(1))
    assert (absent.status, absent.entries) == (Status.NO_ENTRY, ())
    box = BookieBox()
    assert await box.status(batch(0)) is Status.NO_LEDGER


async def test_a_cold_batch_takes_few_reader_jobs() -> None:
    box = await filled(100)
    box.restart()
    jobs: list[object] = []
    reader_job = box.disk.reader_job

    def counted(job):
        jobs.append(job)
        return reader_job(job)

    box.disk.reader_job = counted  # type: ignore[method-assign]
    whole = await box.call(batch(0))
    assert len(whole.entries) == 100
    assert len(jobs) <= 6
    del jobs[:]
    size = len(whole.entries[0]) + 4
    assert len((await box.call(batch(3, size_max=36 + 7 * size))).entries) == 7
    assert len(jobs) <= 3
    assert box.metrics.reads <= 100 + 8  # no more is read than is likely to fit


async def test_batch_reads_that_hold_too_much_are_answered_with_what_they_have() -> None:
    box = BookieBox()
    box.start()
    for entry in range(300):
        await box.call(add(7, entry))
    box.restart()
    gathered = box.handlers._gathered
    gathered.bytes_max = len(envelope(7, 0)) * 300
    both = [box.send(batch(0)), box.send(batch(0))]
    await asyncio.wait(both)
    sizes = sorted(len(each.result().entries) for each in both)
    assert sizes == [256, 300], "a second job was too much for one of them"
    assert box.metrics.gauges["batch_read_bytes"]() == 0
    gathered.bytes_max = 0
    assert len((await box.call(batch(0))).entries) == 256


async def test_batch_read_of_hot_entries_takes_turns() -> None:
    box = BookieBox(limits=WARM._replace(cache_bytes_max=1 << 24))
    for n in range(3000):
        box.send(add(7, n, b""))
    await settle()
    answer = box.send(batch(0))
    assert not answer.done()
    assert len((await answer).entries) == 3000
    assert box.handlers.turns.taken >= 3000 // 256


async def test_a_batch_of_the_smallest_entries_ends_early() -> None:
    box = await filled(9)
    box.handlers._batch_limits = BatchLimits(1 << 20, 4, 1 << 20)
    assert len((await box.call(batch(0))).entries) == 4
    assert len((await box.call(batch(4, count_max=100))).entries) == 4
    assert len((await box.call(batch(8, count_max=3))).entries) == 1
    box.restart()
    box.handlers._batch_limits = BatchLimits(1 << 20, 4, 1 << 20)
    assert len((await box.call(batch(2))).entries) == 4


async def test_a_damaged_entry_ends_a_batch() -> None:
    box = await filled(3)
    location = box.index.places.location(L7, EntryId(1))
    assert location is not None
    box.volume.files["log/0000000001.log"].cached[location.position + 40] ^= 1
    found = await box.call(batch(0))
    assert (found.status, len(found.entries)) == (Status.OK, 1)
    assert await box.status(batch(1)) is Status.IO_ERROR


async def test_read_lac() -> None:
    box = BookieBox()
    assert await box.status(ReadLacRequest(L7)) is Status.NO_LEDGER
    await box.call(fence(7))
    assert await box.status(ReadLacRequest(L7)) is Status.NO_ENTRY
    await box.call(add(7, 0, b"zero", recovery=True))
    found = await box.call(ReadLacRequest(L7))
    assert (found.status, found.lac_packet) == (Status.OK, None)
    assert payload_of(7, found.last_entry) == b"zero"
    packet = EntryCodec(L7, DigestType.CRC32C, b"").seal_lac(EntryId(5))
    assert await box.status(WriteLacRequest(L7, EntryId(5), KEY, packet)) is Status.OK
    found = await box.call(ReadLacRequest(L7))
    assert found.lac_packet == packet
    assert payload_of(7, found.last_entry) == b"zero"
    assert (await box.call(read(7, 0))).max_lac == 5


async def test_an_unreadable_last_entry_makes_read_lac_an_error() -> None:
    box = await filled(1)
    location = box.index.places.location(L7, EntryId(0))
    assert location is not None
    box.volume.files["log/0000000001.log"].cached[location.position + 40] ^= 1
    found = await box.call(ReadLacRequest(L7))
    assert found == (Status.IO_ERROR, 7, None, None)


async def test_bookie_info() -> None:
    box = BookieBox()
    both = await box.call(BookieInfoRequest(True, True))
    assert both == (Status.OK, box.volume.capacity_bytes, box.volume.free_bytes)
    assert await box.call(BookieInfoRequest(False, True)) == (Status.OK, None, both.free_space)
    box.disk.usage = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert await box.call(BookieInfoRequest(True, True)) == (Status.IO_ERROR, None, None)


async def test_list_of_entries() -> None:
    box = await filled(3)
    found = await box.call(ListEntriesRequest(L7))
    assert (found.status, len(found.availability)) == (Status.OK, 64 + 24)


async def test_auth_tls_and_unknown_operations() -> None:
    box = BookieBox()
    assert await box.call(AuthRequest("any", b"token")) == AuthResponse("AuthDisabledPlugin", b"")
    assert await box.call(StartTlsRequest()) == ErrorResponse(9, Status.BAD_REQUEST)
    unknown = UnknownRequest(77, Status.BAD_VERSION)
    assert await box.call(unknown) == ErrorResponse(77, Status.BAD_VERSION)


async def test_long_poll_returns_what_is_there() -> None:
    box = await filled(3)  # known last add confirmed: 1
    found = await box.call(poll(0))
    assert (found.status, found.entry_id, found.max_lac) == (Status.OK, 1, 1)
    assert found.entry[8:16] == (1).to_bytes(8, "big")
    assert found.lac_update_ms is None


async def test_long_poll_waits_for_the_lac() -> None:
    box = await filled(3)
    waiting = box.send(poll(1))
    same = box.send(poll(1))
    await box.call(add(7, 3, lac=1))
    await settle()
    assert not waiting.done()
    await box.call(add(7, 4, lac=2))
    await settle()
    found = waiting.result()
    assert (found.status, found.entry_id, found.max_lac) == (Status.OK, 2, 2)
    assert found.lac_update_ms == 1_700_000_000_000
    assert same.result() == found


async def test_long_poll_without_the_entry_here_tells_the_lac_alone() -> None:
    box = await filled(3)
    await box.call(add(7, 9, lac=8))
    found = await box.call(poll(5))
    assert found == (Status.OK, 7, -1, None, 8, None)


async def test_long_poll_ends_with_its_time_a_fence_or_an_explicit_lac() -> None:
    box = await filled(3)
    found = await box.call(poll(1, timeout_ms=1))
    assert found == (Status.OK, 7, -1, None, 1, None)
    waiting = box.send(poll(4))
    packet = EntryCodec(L7, DigestType.CRC32C, b"").seal_lac(EntryId(5))
    await box.call(WriteLacRequest(L7, EntryId(5), KEY, packet))
    await settle()
    assert waiting.result().max_lac == 5
    waiting = box.send(poll(5))
    await box.call(fence(7))
    await settle()
    assert waiting.result().max_lac == 5
    assert (await box.call(poll(5))).entry_id == -1


async def test_long_poll_without_a_time_or_piggyback_does_not_wait() -> None:
    box = await filled(3)
    assert (await box.call(poll(1, timeout_ms=None))).entry_id == -1
    plain = await box.call(poll(0)._replace(piggyback=False, entry_id=EntryId(2)))
    assert (plain.status, plain.entry_id, plain.max_lac) == (Status.OK, 2, 1)


async def test_long_poll_that_times_out_is_forgotten() -> None:
    box = await filled(3)
    first, second = box.send(poll(1, timeout_ms=1)), box.send(poll(1))
    async with asyncio.timeout(5):
        await first
    await box.call(add(7, 3, lac=2))
    await settle()
    assert second.result().max_lac == 2


async def test_long_polls_that_make_no_sense() -> None:
    box = await filled(1)
    assert await box.status(poll(0, entry_id=EntryId(3))) is Status.BAD_REQUEST
    assert await box.status(poll(0)._replace(previous_lac=None)) is Status.BAD_REQUEST
    assert await box.status(poll(0, ledger_id=LedgerId(8))) is Status.NO_LEDGER

"""Reads of the object store: like those of a ledger, few requests, bounded memory, nobody waits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.partition import archive as archive_module
from broker.partition.archive import Archive, ArchivedReader, StillReading
from client.errors import LogCorrupt, ReadFailed, StoreUnavailable
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log import segment_object
from client.log.entry_format import SNAPSHOT_TYPE, seal_internal
from client.log.segment import Segment, SegmentFacts, StoredObject
from client.log.segment_object import (
    TRAILER_BYTES,
    Description,
    ObjectName,
    SegmentObjectWriter,
    read_footer,
)
from client.objects.memory import Fault, MemoryObjectStore
from client.wire.bookkeeper.entry import Entry
from tests.fakes.virtual_time import VirtualClock, run

COUNT = 40
FOLDER = "log/topic/0"


def entry(number: int) -> bytes:
    return seal_internal(Offset(0), LeaderEpoch(0), SNAPSHOT_TYPE, bytes([number]) * 100)


async def stored(store: MemoryObjectStore) -> Segment:
    facts = SegmentFacts(Offset(-1), 1, -1)
    segment = Segment(LedgerId(7), Offset(0), LeaderEpoch(0), 1, facts)
    writer = SegmentObjectWriter(Description("c", "t", "id", 0, 5, segment), 1000)
    data = b"".join([*writer.add([entry(number) for number in range(COUNT)]), *writer.finish()])

    async def parts() -> AsyncIterator[bytes]:
        yield data

    await store.put(ObjectName(Offset(0), LedgerId(7), 5).path(FOLDER), parts())
    footer = read_footer(data, len(data))
    assert footer.object_bytes == len(data)
    assert len(data) > TRAILER_BYTES
    return segment._replace(stored=StoredObject(5, len(data), footer.size, footer.crc, 0, True))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_object, "BLOCK_BYTES", 300)
    monkeypatch.setattr(archive_module, "_RUN_BYTES", 1000)


async def opened(archive: Archive, segment: Segment) -> ArchivedReader:
    return await archive.open(FOLDER, segment)


def test_entries_are_those_of_the_ledger_in_few_requests() -> None:
    async def scenario() -> None:
        store = MemoryObjectStore(VirtualClock())
        segment = await stored(store)
        archive = Archive(store, cache_bytes_max=100_000)
        reader = await opened(archive, segment)
        assert (reader.ledger_id, reader.last_entry) == (7, COUNT - 1)
        found: list[Entry] = []
        while len(found) < COUNT:
            found += await reader.read(EntryId(len(found)), EntryId(COUNT - 1))
        assert [bytes(one.payload) for one in found] == [entry(at) for at in range(COUNT)]
        assert reader.length == found[-1].length
        for first in range(COUNT):
            some = await reader.read_some(EntryId(first), EntryId(COUNT - 1))
            assert some[0].entry_id == first
            (one,) = await reader.read(EntryId(first), EntryId(first))
            assert bytes(one.payload) == entry(first)
        calls = [call for call, _ in store.calls]
        assert calls.count("tail") == 1
        assert calls.count("read") == 7  # 40 entries of some 120 bytes, in runs of a thousand
        assert archive.reason == ""

    run(scenario())


def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    async def scenario() -> None:
        store = MemoryObjectStore(VirtualClock())
        segment = await stored(store)
        archive = Archive(store, cache_bytes_max=2500)
        reader = await opened(archive, segment)
        for first in range(COUNT):
            await reader.read(EntryId(first), EntryId(first))
            assert archive.cached_bytes <= 2500
        count = len(store.calls)
        await reader.read(EntryId(COUNT - 1), EntryId(COUNT - 1))
        assert len(store.calls) == count
        await reader.read(EntryId(0), EntryId(0))
        assert len(store.calls) == count + 1
        await archive.close()
        assert archive.cached_bytes == 0

    run(scenario())


def test_what_is_on_its_way_counts_and_others_wait_for_room() -> None:
    async def scenario() -> None:
        store = MemoryObjectStore(VirtualClock())
        segment = await stored(store)
        archive = Archive(store, cache_bytes_max=2500, wait_s=0.5)
        reader = await opened(archive, segment)
        store.faults = lambda call, name: Fault(delay_s=2.0)
        with pytest.raises(StillReading, match="has not answered"):
            await reader.read(EntryId(0), EntryId(COUNT - 1))
        with pytest.raises(StillReading, match="waits for room"):
            await reader.read(EntryId(COUNT - 1), EntryId(COUNT - 1))
        assert archive.cached_bytes <= 2500
        at, tries = 0, 0
        while at < COUNT:  # more than fits at once, and still it comes to an end
            try:
                found = await reader.read(EntryId(at), EntryId(COUNT - 1))
            except StillReading:
                tries += 1
                continue
            assert [one.entry_id for one in found] == [*range(at, at + len(found))]
            at += len(found)
        assert 4 < tries < 40

    run(scenario())


def test_nobody_waits_long_and_nothing_is_asked_for_twice() -> None:
    async def scenario() -> None:
        store = MemoryObjectStore(VirtualClock())
        segment = await stored(store)
        archive = Archive(store, wait_s=0.5)
        store.faults = lambda call, name: Fault(delay_s=1.2)
        for _ in range(2):
            with pytest.raises(StillReading):
                await opened(archive, segment)
        reader = await opened(archive, segment)
        for _ in range(2):
            with pytest.raises(StillReading):
                await reader.read(EntryId(0), EntryId(0))
        assert await reader.read(EntryId(0), EntryId(0))
        assert [call for call, _ in store.calls] == ["put", "tail", "read"]

    run(scenario())


def test_a_failure_is_told_and_not_kept() -> None:
    async def scenario() -> None:
        store = MemoryObjectStore(VirtualClock())
        segment = await stored(store)
        archive = Archive(store)
        reader = await opened(archive, segment)
        store.faults = lambda call, name: Fault(refuses=StoreUnavailable("503"))
        with pytest.raises(ReadFailed, match="503"):
            await reader.read(EntryId(0), EntryId(0))
        assert (archive.failures, archive.reason) == (1, "503")
        store.faults = lambda call, name: Fault(flips=True)
        with pytest.raises(LogCorrupt, match="damaged"):
            await reader.read(EntryId(0), EntryId(8))
        store.faults = lambda call, name: Fault()
        assert await reader.read(EntryId(0), EntryId(8))
        assert archive.cached_bytes > 0
        assert archive.reason == ""

    run(scenario())


def test_another_object_than_the_listed_one_is_refused() -> None:
    async def scenario() -> None:
        store = MemoryObjectStore(VirtualClock())
        segment = await stored(store)
        assert segment.stored is not None
        other = segment._replace(stored=segment.stored._replace(footer_crc=1))
        with pytest.raises(LogCorrupt, match="is not the object that was listed"):
            await opened(Archive(store), other)

    run(scenario())

"""Cold reads: the right entry, nothing, or an error; never something else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookie.errors import CorruptIndex, CorruptRecord
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    Kind,
    Location,
    LogPosition,
    pack_record_header,
    seed_of,
)
from bookie.storage.entry_reader import EntryReader
from client.ids import EntryId, LedgerId
from tests.fakes.bookie_box import BookieBox, add, envelope, settle

L7, E0, E1, E2 = LedgerId(7), EntryId(0), EntryId(1), EntryId(2)


async def make() -> tuple[BookieBox, EntryReader]:
    box = BookieBox()
    await box.call(add(7, 0, b"zero"))
    await box.call(add(7, 1, b"one", lac=0))
    await settle()
    return box, EntryReader(box.disk, box.index.places, seed_of(box.checkpoint.salt))


def point(box: BookieBox, entry_id: EntryId, location: Location) -> None:
    box.index.write([(L7, entry_id, location)], [], LogPosition(1, 1000))


async def test_found_and_absent() -> None:
    _, reader = await make()
    assert reader.read(L7, E0) == envelope(7, 0, b"zero")
    assert reader.read(L7, E2) is None
    assert reader.read_many([(L7, E1), (L7, E2)], 1 << 20) == [envelope(7, 1, b"one", lac=0), None]
    assert reader.tail(L7) == (1, 0)
    assert reader.tail(LedgerId(8)) == (-1, -1)


async def test_every_wrong_place_is_an_error() -> None:
    box, reader = await make()
    zero = box.index.places.location(L7, E0)
    assert zero is not None
    wrong = [
        zero._replace(position=zero.position + 1),
        zero._replace(size=zero.size - 1),
        zero._replace(number=9),
        zero._replace(position=1 << 20),
        Location(1, FILE_HEADER_BYTES, 28),  # the ledger's key record
    ]
    for location in (*wrong, zero):  # `zero` itself is another entry than the one asked for
        point(box, E2, location)
        with pytest.raises(CorruptRecord):
            reader.read(L7, E2)
    [found] = reader.read_many([(L7, E2)], 1 << 20)
    assert isinstance(found, CorruptRecord)
    with pytest.raises(CorruptRecord):
        reader.tail(L7)


async def test_a_record_that_was_copied_elsewhere_is_an_error() -> None:
    box, reader = await make()
    body = envelope(7, 2)
    seed = seed_of(box.checkpoint.salt)
    copied = pack_record_header(seed, Kind.ENTRY, 1, 64, 5000, body) + body
    box.volume.files["log/0000000001.log"].write(6000, copied)
    point(box, E2, Location(1, 6000, len(body)))
    with pytest.raises(CorruptRecord, match="another record"):
        reader.read(L7, E2)


async def test_a_broken_index_is_an_error_not_an_absence(monkeypatch) -> None:
    box, reader = await make()

    def broken(*args: object) -> None:
        raise CorruptIndex("block checksum mismatch")

    monkeypatch.setattr(box.index.places, "location", broken)
    [found] = reader.read_many([(L7, E0)], 1 << 20)
    assert isinstance(found, CorruptIndex)


async def test_neighbours_come_with_one_read_in_the_order_asked_for(monkeypatch) -> None:
    box = BookieBox()
    for entry_id in range(20):
        await box.call(add(7, entry_id, b"%d" % entry_id))
    await settle()
    reads = count_reads(box, monkeypatch)
    reader = EntryReader(box.disk, box.index.places, seed_of(box.checkpoint.salt))
    wanted = [EntryId(n) for n in (9, 3, 3, 19, 0, 30)]
    found = reader.read_many([(L7, entry_id) for entry_id in wanted], 1 << 20)
    assert found == [*(envelope(7, n, b"%d" % n) for n in wanted[:-1]), None]
    assert len(reads) == 1


async def test_entries_that_follow_each_other_are_looked_up_at_once(monkeypatch) -> None:
    box = BookieBox()
    for entry_id in (*range(2, 8), 9):
        await box.call(add(7, entry_id, b"%d" % entry_id))
    await settle()
    looked_up: list[EntryId] = []
    location = box.index.places.location

    def one_by_one(ledger_id: LedgerId, entry_id: EntryId) -> Location | None:
        looked_up.append(entry_id)
        return location(ledger_id, entry_id)

    monkeypatch.setattr(box.index.places, "location", one_by_one)
    reader = EntryReader(box.disk, box.index.places, seed_of(box.checkpoint.salt))
    run = [(L7, EntryId(n)) for n in range(12)]
    there = [envelope(7, n, b"%d" % n) if n in (*range(2, 8), 9) else None for n in range(12)]
    assert reader.read_many(run, 1 << 20) == there
    assert looked_up == [0, 1, 8, 10, 11], "an absence is asked for by itself"
    assert box.index.places.locations(L7, EntryId(8), EntryId(9)).keys() == {9}

    def damaged(*_run: object) -> dict[EntryId, Location]:
        raise CorruptIndex("a block is wrong")

    monkeypatch.setattr(box.index.places, "locations", damaged)
    assert reader.read_many(run, 1 << 20) == there


async def test_what_lies_apart_is_read_apart(monkeypatch) -> None:
    box = BookieBox()
    for entry_id in range(8):
        await box.call(add(7, entry_id, bytes(100_000)))
    await settle()
    reads = count_reads(box, monkeypatch)
    reader = EntryReader(box.disk, box.index.places, seed_of(box.checkpoint.salt))
    found = reader.read_many([(L7, EntryId(n)) for n in range(8)], 1 << 20)
    assert found == [envelope(7, n, bytes(100_000)) for n in range(8)]
    assert len(reads) == 4, "two of these are within the limit of one read"
    reads.clear()
    reader.read_many([(L7, E0), (L7, E2)], 1 << 20)
    assert len(reads) == 2, "nobody asked for the entry between them"


async def test_a_rotten_entry_spoils_no_neighbour() -> None:
    box, reader = await make()
    await box.call(add(7, 2, b"two"))
    await settle()
    one = box.index.places.location(L7, E1)
    assert one is not None
    box.volume.files["log/0000000001.log"].rot(one.end - 1, 1)
    zero, broken, two = reader.read_many([(L7, E0), (L7, E1), (L7, E2)], 1 << 20)
    assert (zero, two) == (envelope(7, 0, b"zero"), envelope(7, 2, b"two"))
    assert isinstance(broken, CorruptRecord)
    assert str(one.position) in str(broken)


async def test_a_run_ends_at_what_cannot_be_read(monkeypatch) -> None:
    box, reader = await make()
    for entry_id in (2, 3, 5):
        await box.call(add(7, entry_id, b"%d" % entry_id))
    await settle()
    reads = count_reads(box, monkeypatch)
    whole = [envelope(7, 0, b"zero"), envelope(7, 1, b"one", lac=0)]
    whole += [envelope(7, n, b"%d" % n) for n in (2, 3)]
    assert reader.read_run(L7, E0, 100, 1 << 20) == whole
    assert len(reads) == 1
    assert reader.read_run(L7, E1, 2, 1 << 20) == whole[1:3]
    assert reader.read_run(L7, EntryId(4), 100, 1 << 20) == []
    two = box.index.places.location(L7, E2)
    assert two is not None
    box.volume.files["log/0000000001.log"].rot(two.end - 1, 1)
    assert reader.read_run(L7, E0, 100, 1 << 20) == whole[:2]
    with pytest.raises(CorruptRecord, match=str(two.position)):
        reader.read_run(L7, E2, 100, 1 << 20)


async def test_a_run_that_lies_scattered_comes_with_one_opening_of_its_file(monkeypatch) -> None:
    box = BookieBox()
    for entry_id in range(3):
        await box.call(add(7, entry_id, b"%d" % entry_id))
        await box.call(add(8, entry_id, bytes(20_000)))  # further than a gap that is read over
    await settle()
    reads, openings = count_reads(box, monkeypatch), 0
    read_pieces = box.disk.read_pieces

    def counted(name: str, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        nonlocal openings
        openings += 1
        return read_pieces(name, pieces)

    monkeypatch.setattr(box.disk, "read_pieces", counted)
    reader = EntryReader(box.disk, box.index.places, seed_of(box.checkpoint.salt))
    assert reader.read_run(L7, E0, 9, 1 << 20) == [envelope(7, n, b"%d" % n) for n in range(3)]
    assert (openings, len(reads)) == (1, 3)


async def test_a_damaged_run_of_the_index_is_looked_up_one_by_one(monkeypatch) -> None:
    box, reader = await make()

    def damaged(*_args: object) -> None:
        raise CorruptIndex("a block is wrong")

    monkeypatch.setattr(box.index.places, "run", damaged)
    assert reader.read_run(L7, E0, 100, 1 << 20) == [envelope(7, 0, b"zero")]
    monkeypatch.setattr(box.index.places, "location", damaged)
    with pytest.raises(CorruptIndex):
        reader.read_run(L7, E0, 100, 1 << 20)


async def test_an_entry_that_moved_meanwhile_is_found_where_it_is_now(monkeypatch) -> None:
    box, reader = await make()
    right = box.index.places.location(L7, E1)
    assert right is not None
    locations = iter([right._replace(number=9), right])
    ask = box.index.places.location
    monkeypatch.setattr(
        box.index.places,
        "location",
        lambda lid, eid: next(locations, right) if eid else ask(lid, eid),
    )
    found = reader.read_many([(L7, E0), (L7, E1)], 1 << 20)
    assert found == [envelope(7, 0, b"zero"), envelope(7, 1, b"one", lac=0)]


def count_reads(box: BookieBox, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    reads: list[tuple[int, int]] = []
    read = box.disk.read

    def counted(name: str, position: int, size: int) -> bytes:
        reads.append((position, size))
        return read(name, position, size)

    monkeypatch.setattr(box.disk, "read", counted)
    return reads

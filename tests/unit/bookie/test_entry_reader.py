"""Cold reads: the right entry, nothing, or an error; never something else."""

from __future__ import annotations

import pytest

from bookie.core.append_log import LogPosition
from bookie.core.log_format import FILE_HEADER_BYTES, Kind, Location, pack_record_header, seed_of
from bookie.entry_reader import EntryReader
from bookie.errors import CorruptIndex, CorruptRecord
from client.ids import EntryId, LedgerId
from tests.fakes.bookie_box import BookieBox, add, envelope, settle

L7, E0, E1, E2 = LedgerId(7), EntryId(0), EntryId(1), EntryId(2)


async def make() -> tuple[BookieBox, EntryReader]:
    box = BookieBox()
    await box.call(add(7, 0, b"zero"))
    await box.call(add(7, 1, b"one", lac=0))
    await settle()
    return box, EntryReader(box.disk, box.index, seed_of(box.checkpoint.salt))


def point(box: BookieBox, entry_id: EntryId, location: Location) -> None:
    box.index.write([(L7, entry_id, location)], [], LogPosition(1, 1000))


async def test_found_and_absent() -> None:
    _, reader = await make()
    assert reader.read(L7, E0) == envelope(7, 0, b"zero")
    assert reader.read(L7, E2) is None
    assert reader.read_many([(L7, E1), (L7, E2)]) == [envelope(7, 1, b"one", lac=0), None]
    assert reader.tail(L7) == (1, 0)
    assert reader.tail(LedgerId(8)) == (-1, -1)


async def test_every_wrong_place_is_an_error() -> None:
    box, reader = await make()
    zero = box.index.location(L7, E0)
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
    [found] = reader.read_many([(L7, E2)])
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

    monkeypatch.setattr(box.index, "location", broken)
    [found] = reader.read_many([(L7, E0)])
    assert isinstance(found, CorruptIndex)

"""The object of a segment: it gives back every entry as it was, and nothing that was not there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log import segment_object
from client.log.entry_format import SNAPSHOT_TYPE, seal_internal
from client.log.segment import Segment, SegmentFacts
from client.log.segment_object import (
    Description,
    Footer,
    ObjectCheck,
    ObjectName,
    SegmentObjectWriter,
    footer_bytes,
    open_block,
    parse_name,
    read_footer,
)
from client.wire.kafka.batches.records import STAMP_BYTES, parse_header, stamp
from tests.fakes.keyed import keyed

BASE = Offset(100)


def entries_of(sizes: list[int]) -> list[bytes]:
    """A snapshot, and a batch of two records for each size of their values."""
    found, at = [seal_internal(BASE, LeaderEpoch(3), SNAPSHOT_TYPE, b"state")], int(BASE)
    for size in sizes:
        batch = keyed(("k", "v" * size), ("k", None), base_offset=at)
        header = parse_header(batch)
        found.append(stamp(Offset(at), header.batch_length, LeaderEpoch(3)) + batch[STAMP_BYTES:])
        at += 2
    return found


def described(sizes: list[int]) -> Description:
    facts = SegmentFacts(Offset(BASE + 2 * len(sizes) - 1), 1, -1)
    segment = Segment(LedgerId(7), BASE, LeaderEpoch(3), 5, facts)
    return Description("cluster", "orders", "an-id", 4, 0xABC, segment)


def made(sizes: list[int], part_bytes: int = 1000) -> bytes:
    writer = SegmentObjectWriter(described(sizes), part_bytes)
    parts: list[bytes] = []
    for entry in entries_of(sizes):
        parts += writer.add([entry])
    parts += writer.finish()
    blocks = opened(b"".join(parts)).blocks
    assert all(parts)
    assert all(
        len(part) <= part_bytes or len(part) in {block.size for block in blocks}
        for part in parts[:-1]
    )
    return b"".join(parts)


def opened(data: bytes) -> Footer:
    count = footer_bytes(data[-64:], len(data))
    return read_footer(data[-count:], len(data))


def read_all(data: bytes) -> list[bytes]:
    footer = opened(data)
    check = ObjectCheck(footer)
    found: list[bytes] = []
    for index, block in enumerate(footer.blocks):
        part = data[block.position : block.end]
        check.add(part)
        found += [bytes(entry.payload) for entry in open_block(footer, index, part)]
    check.finish()
    return found


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_object, "BLOCK_BYTES", 700)


SIZES = st.lists(st.integers(0, 900), max_size=12)


@given(SIZES, st.integers(100, 3000))
@settings(max_examples=60, deadline=None)
def test_every_entry_comes_back_under_its_id(sizes: list[int], part_bytes: int) -> None:
    data = made(sizes, part_bytes)
    footer = opened(data)
    assert read_all(data) == entries_of(sizes)
    assert footer.object_bytes == len(data)
    assert footer.description.snapshot_entry == 0
    assert footer.description.last_entry == len(sizes)
    assert footer.description.segment == described(sizes).segment
    for entry_id in range(len(sizes) + 1):
        index = footer.block_of(EntryId(entry_id))
        block = footer.blocks[index]
        entries = open_block(footer, index, data[block.position : block.end])
        assert [one.entry_id for one in entries].count(entry_id) == 1
        assert entries[-1].length <= footer.description.payload_bytes


@given(SIZES, st.data())
@settings(max_examples=100, deadline=None)
def test_what_was_cut_short_is_refused(sizes: list[int], data: st.DataObject) -> None:
    whole = made(sizes)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(LogCorrupt):
        opened(cut)


@given(SIZES, st.data())
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_is_found_wherever_it_is(sizes: list[int], data: st.DataObject) -> None:
    whole = bytearray(made(sizes))
    at = data.draw(st.integers(len(segment_object.MAGIC), len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(LogCorrupt):
        read_all(bytes(whole))


def test_an_object_that_ends_too_early_is_no_proof() -> None:
    data = made([10, 20, 30])
    footer = opened(data)
    longer = footer._replace(description=described([10, 20, 30, 40]))
    check = ObjectCheck(longer)
    for block in footer.blocks:
        check.add(data[block.position : block.end])
    with pytest.raises(LogCorrupt, match="ends at offset 106, the segment at 108"):
        check.finish()


def test_names_are_read_back_and_nothing_else_is() -> None:
    name = ObjectName(Offset(12), LedgerId(34), 0xDEAD)
    path = name.path("log/topic/0")
    assert path == "log/topic/0/00000000000000000012-34-000000000000dead.seg"
    assert parse_name(path) == name
    for other in ("log/topic/0/12-34-dead.seg", "log/x.parquet", path[:-4], "a-b-c.seg", ""):
        assert parse_name(other) is None


def test_a_version_of_the_future_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_object, "VERSION", 9)
    data = made([1])
    monkeypatch.setattr(segment_object, "VERSION", 1)
    with pytest.raises(LogCorrupt, match="version 9, only 1 is known"):
        opened(data)

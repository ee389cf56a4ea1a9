"""The object of a sealed segment: the entries of its ledger as they are, and where each one is.

    0          "QUIRESEG"
    8          blocks, one after the other
    f          footer
    size - 24  trailer: footer bytes u32, CRC-32C of the footer u32, size of the object u64,
               "QUIRESEG"

All numbers are big-endian. A block is entries in order, of about a MiB together:

    payload bytes u32, payload          for each

The footer says what the object is, and where its blocks are:

    version u16 = 1, description bytes u32, description (JSON), block count u32, then per block:
    first entry i64, entry count u32, position u64, bytes u32, CRC-32C of them u32,
    payload bytes of all entries before it u64, offset at which it begins i64,
    largest timestamp of all batches before it i64 (-1: none has one)

Every entry of the ledger is there under its own id, internal ones too. So whatever names an entry
finds it here as well: the places of snapshots, and those of aborted transactions, which the facts
of a segment name by ledger and entry (`segment.py`). `snapshot_entry` says which entry is the last
snapshot. The description holds all that the segment list says of the segment: whoever has nothing
but the objects can put the list together again.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from client.errors import LogCorrupt
from client.ids import NO_ENTRY, EntryId, LedgerId, Offset
from client.log.entry_format import (
    SNAPSHOT_TYPE,
    batch_headers,
    first_offset,
    is_internal,
    next_offset,
    open_internal,
)
from client.log.segment import Segment, segment_from_json, segment_to_json
from client.metadata.json_node import read_object, whole
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.records import CRC_START, Buffer

MAGIC: Final = b"QUIRESEG"
VERSION: Final = 1
BLOCK_BYTES: Final = 1 << 20
TRAILER_BYTES: Final = 24
TAIL_BYTES: Final = 64 * 1024
"""What one look at the end asks for: the footer of a segment of a GiB is smaller."""
FOOTER_BYTES_MAX: Final = 8 << 20

_LENGTH: Final = struct.Struct(">I")
_TRAILER: Final = struct.Struct(">IIQ8s")
_FOOTER_HEAD: Final = struct.Struct(">HI")
_ROW: Final = struct.Struct(">qIQIIQqq")


class ObjectName(NamedTuple):
    """What an object is called below the folder of its partition; never used twice (OWN-NAME)."""

    base_offset: Offset
    ledger_id: LedgerId
    attempt: int
    """64 random bits, drawn for one attempt to copy."""

    def path(self, folder: str) -> str:
        """Return the name in the store; `folder`: of the partition."""
        return f"{folder}/{self.base_offset:020d}-{self.ledger_id}-{self.attempt:016x}.seg"


def folder_of(topic_id: str, partition: int) -> str:
    """Return where the objects of a partition are."""
    return f"log/{topic_id}/{partition}"


def parse_name(path: str) -> ObjectName | None:
    """Read a name back; None: it is none that we give."""
    parts = path.rpartition("/")[2].removesuffix(".seg").split("-")
    try:
        base, ledger_id, attempt = int(parts[0]), int(parts[1]), int(parts[2], 16)
    except (ValueError, IndexError):
        return None
    name = ObjectName(Offset(base), LedgerId(ledger_id), attempt)
    return name if name.path("") == f"/{path.rpartition('/')[2]}" else None


class Description(NamedTuple):
    """What an object is of."""

    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    attempt: int
    segment: Segment
    """As the list says; sealed."""
    last_entry: EntryId = NO_ENTRY
    payload_bytes: int = 0
    snapshot_entry: EntryId = NO_ENTRY
    """The last snapshot; -1: there is none, and no entry at all."""

    def encode(self) -> bytes:
        """Return its JSON."""
        value = self._asdict() | {
            "segment": segment_to_json(self.segment),
            "attempt": f"{self.attempt:016x}",
        }
        return json.dumps(value, separators=(",", ":")).encode()


class Block(NamedTuple):
    """Where a run of entries is."""

    first_entry: EntryId
    entry_count: int
    position: int
    size: int
    crc: int
    payload_before: int
    """Payload bytes of all entries before it."""
    first_offset: Offset
    max_timestamp_before: int

    @property
    def last_entry(self) -> EntryId:
        """The last entry in it."""
        return EntryId(self.first_entry + self.entry_count - 1)

    @property
    def end(self) -> int:
        """Position after its last byte."""
        return self.position + self.size


class Footer(NamedTuple):
    """The end of an object."""

    description: Description
    blocks: tuple[Block, ...]
    size: int
    """Bytes of the footer, without the trailer."""
    crc: int

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        return (self.blocks[-1].end if self.blocks else len(MAGIC)) + self.size + TRAILER_BYTES

    def block_of(self, entry_id: EntryId) -> int:
        """Return the index of the block that has an entry."""
        return bisect_right(self.blocks, entry_id, key=lambda block: block.first_entry) - 1


class SegmentObjectWriter:
    """Makes an object of a ledger's entries, part by part; holds a part and a block at most, and
    copies each byte once."""

    def __init__(self, description: Description, part_bytes: int) -> None:
        """`description` lacks what only the entries tell. `part_bytes`: of a part at most, unless
        a single block is larger."""
        self._description = description
        self._part_bytes = part_bytes
        self._pieces: list[Buffer] = [MAGIC]
        """Of the part that is being filled, whole blocks."""
        self._part_start = 0
        self._position = len(MAGIC)
        """Where the next block begins."""
        self._entries: list[Buffer] = []
        """Of the block that is being filled."""
        self._entry_bytes = 0
        self._first_offset = Offset(0)
        self._timestamp_before = self._max_timestamp = -1
        self._payload_before = 0
        self._count = 0
        self._snapshot = NO_ENTRY
        self._blocks: list[Block] = []
        self._parts: list[bytes] = []
        """What is complete and not taken yet."""

    def add(self, payloads: Sequence[Buffer]) -> list[bytes]:
        """Add the next entries; return the parts that are complete. Raises LogCorrupt."""
        for payload in payloads:
            if self._entries and self._entry_bytes + len(payload) > BLOCK_BYTES:
                self._end_block()
            if not self._entries:
                self._first_offset = first_offset(payload)
                self._timestamp_before = self._max_timestamp
            if is_internal(payload):
                if open_internal(payload).type == SNAPSHOT_TYPE:
                    self._snapshot = EntryId(self._count)
            else:
                newest = max(header.max_timestamp for _at, header in batch_headers(payload))
                self._max_timestamp = max(self._max_timestamp, newest)
            self._entries.append(payload)
            self._entry_bytes += len(payload)
            self._count += 1
        return self._taken()

    def finish(self) -> list[bytes]:
        """Return the last parts."""
        if self._entries:
            self._end_block()
        described = self._description._replace(
            last_entry=EntryId(self._count - 1),
            payload_bytes=self._payload_before,
            snapshot_entry=self._snapshot,
        )
        text = described.encode()
        data = _FOOTER_HEAD.pack(VERSION, len(text)) + text + _LENGTH.pack(len(self._blocks))
        data += b"".join(_ROW.pack(*block) for block in self._blocks)
        size = self._position + len(data) + TRAILER_BYTES
        self._put([data, _TRAILER.pack(len(data), crc32c(data), size, MAGIC)])
        self._end_part()
        return self._taken()

    def _end_block(self) -> None:
        pieces: list[Buffer] = []
        crc = 0
        for payload in self._entries:
            length = _LENGTH.pack(len(payload))
            crc = crc32c(payload, crc32c(length, crc))
            pieces += (length, payload)
        position, count = self._position, len(self._entries)
        self._put(pieces)
        self._blocks.append(
            Block(
                EntryId(self._count - count),
                count,
                position,
                self._position - position,
                crc,
                self._payload_before,
                self._first_offset,
                self._timestamp_before,
            )
        )
        self._payload_before += self._entry_bytes
        self._entries = []
        self._entry_bytes = 0

    def _put(self, pieces: Sequence[Buffer]) -> None:
        """Add whole blocks to the part that is being filled, or begin another one."""
        size = sum(map(len, pieces))
        if self._position - self._part_start + size > self._part_bytes:
            self._end_part()
        self._pieces += pieces
        self._position += size

    def _end_part(self) -> None:
        if self._pieces:
            self._parts.append(b"".join(self._pieces))
        self._pieces = []
        self._part_start = self._position

    def _taken(self) -> list[bytes]:
        parts, self._parts = self._parts, []
        return parts


def footer_bytes(tail: Buffer, size: int) -> int:
    """Return how much of the end of an object of `size` bytes its footer takes, with the trailer.

    `tail`: the end of it, with the trailer at least. Raises LogCorrupt: it is no whole object.
    """
    if len(tail) < TRAILER_BYTES:
        raise LogCorrupt(f"an object of {size} bytes holds no segment")
    footer, _crc, said, magic = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    if magic != MAGIC or said != size or footer > min(size, FOOTER_BYTES_MAX):
        raise LogCorrupt(f"an object of {size} bytes that is no whole segment: it was cut short?")
    return int(footer) + TRAILER_BYTES


def read_footer(tail: Buffer, size: int) -> Footer:
    """Read the footer. `tail`: `footer_bytes` at least. Raises LogCorrupt."""
    count = footer_bytes(tail, size)
    if len(tail) < count:
        raise LogCorrupt("the footer is longer than what was read of it")
    _count, crc, _size, _magic = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    data = memoryview(tail)[len(tail) - count : len(tail) - TRAILER_BYTES]
    if crc32c(data) != crc:
        raise LogCorrupt("the footer of a segment's object is damaged")
    try:
        version, text_bytes = _FOOTER_HEAD.unpack_from(data)
        if version != VERSION:
            raise LogCorrupt(f"segment object of version {version}, only {VERSION} is known")
        at = _FOOTER_HEAD.size + text_bytes
        description = _described(read_object(bytes(data[_FOOTER_HEAD.size : at])))
        (block_count,) = _LENGTH.unpack_from(data, at)
        rows = data[at + _LENGTH.size :]
        if len(rows) != block_count * _ROW.size:
            raise ValueError("the rows of blocks do not end where the footer does")
        blocks = tuple(Block(*row) for row in _ROW.iter_unpack(rows))
        _check_blocks(description, blocks, size - count)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise LogCorrupt(f"the footer of a segment's object contradicts itself: {error}") from error
    return Footer(description, blocks, len(data), crc)


def _described(value: dict[str, Any]) -> Description:
    return Description(
        str(value["cluster_id"]),
        str(value["topic"]),
        str(value["topic_id"]),
        whole(value, "partition"),
        int(value["attempt"], 16),
        segment_from_json(value["segment"]),
        EntryId(whole(value, "last_entry", -1)),
        whole(value, "payload_bytes"),
        EntryId(whole(value, "snapshot_entry", -1)),
    )


def _check_blocks(description: Description, blocks: Sequence[Block], end: int) -> None:
    """Blocks and entries follow each other without a gap. Raises ValueError."""
    at, entry, payload = len(MAGIC), 0, 0
    for block in blocks:
        if (block.position, block.first_entry, block.payload_before) != (at, entry, payload):
            raise ValueError("a block does not begin where the one before ends")
        if block.entry_count < 1 or block.size < _LENGTH.size * block.entry_count:
            raise ValueError("a block is too small for its entries")
        at, entry = block.end, entry + block.entry_count
        payload += block.size - _LENGTH.size * block.entry_count
    if (at, entry - 1, payload) != (end, description.last_entry, description.payload_bytes):
        raise ValueError("the blocks are not what the description says")


def open_block(footer: Footer, index: int, data: Buffer) -> list[Entry]:
    """Return the entries of a block, as views of it. Raises LogCorrupt."""
    block = footer.blocks[index]
    ledger_id = footer.description.segment.ledger_id
    if len(data) != block.size or crc32c(data) != block.crc:
        raise LogCorrupt(
            f"block {index} of the object of ledger {ledger_id} is damaged, or was cut short:"
            f" {len(data)} of {block.size} bytes"
        )
    view, at, length = memoryview(data), 0, block.payload_before
    entries: list[Entry] = []
    for entry_id in range(block.first_entry, block.first_entry + block.entry_count):
        (size,) = _LENGTH.unpack_from(view, at) if at + _LENGTH.size <= block.size else (-1,)
        at += _LENGTH.size
        if size < 0 or at + size > block.size:
            raise LogCorrupt(f"block {index} of the object of ledger {ledger_id} has other entries")
        length += size
        last = footer.description.last_entry
        entries.append(Entry(ledger_id, EntryId(entry_id), last, length, view[at : at + size]))
        at += size
    return entries


class ObjectCheck:
    """Proves that an object holds its segment: every block, every batch, every offset (VERIFY)."""

    def __init__(self, footer: Footer) -> None:
        self._footer = footer
        segment = footer.description.segment
        assert segment.base_offset is not None
        self._reached = segment.base_offset
        self._next = 0

    def add(self, data: Buffer) -> None:
        """Check the next block. Raises LogCorrupt."""
        for entry in open_block(self._footer, self._next, data):
            payload = entry.payload
            if first_offset(payload) < self._reached:
                raise LogCorrupt(f"entry {entry.entry_id} goes back to {first_offset(payload)}")
            if not is_internal(payload):
                _check_batches(payload)
            self._reached = next_offset(payload)
        self._next += 1

    def finish(self) -> None:
        """All blocks were given. Raises LogCorrupt unless the segment ends where it should."""
        segment = self._footer.description.segment
        end = segment.end_offset
        is_end = self._reached <= (end or 0) if segment.cleaned else self._reached == end
        if self._next != len(self._footer.blocks) or end is None or not is_end:
            raise LogCorrupt(f"the object ends at offset {self._reached}, the segment at {end}")


def _check_batches(payload: memoryview) -> None:
    """Check each batch by its own CRC. Raises LogCorrupt."""
    for at, header in batch_headers(payload):
        if crc32c(payload[at + CRC_START : at + header.size]) != header.crc:
            raise LogCorrupt(f"the batch at offset {header.base_offset} does not match its CRC")

"""FORMAT.md is true: its example is read by its own tables, and our code writes the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import crc32c

import bookie
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    FIRST_COPY,
    FORMAT_VERSION,
    RECORD_HEADER_BYTES,
    AppendLog,
    Deletion,
    Kind,
    LogPosition,
    pack_deletion,
    pack_ledger,
    seed_of,
    unpack_deletion,
)
from bookie.storage.core.log_scan import LogScan
from bookie.storage.index.index import Index, LedgerRecord, Tally
from bookie.storage.index.indexer import Checkpoint, Damage, LogFile, decode_checkpoint
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from tests.fakes.clock import rng
from tests.fakes.key_values import Contents, MemoryKeyValues

TEXT = (Path(bookie.__path__[0]) / "FORMAT.md").read_text(encoding="utf-8")
EXAMPLE = TEXT.partition("## An example")[2]
SALT = 0x0123456789ABCDEF
KEY = master_key(b"")
TIME_MS = 1_700_000_000_000
L7, L8 = LedgerId(7), LedgerId(8)

Field = tuple[int, int, str]
"""Offset, size, what it is."""


def table(title: str) -> list[Field]:
    """Return the fields of a table of the document."""
    section = TEXT.partition(f"### {title}")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (\d+) \| (\d*) \| (.+) \|$", section, re.MULTILINE)
    return [(int(offset), int(size or 0), text) for offset, size, text in rows]


def dump() -> bytes:
    rows = re.findall(r"^    [0-9a-f]{4}  ([0-9a-f ]+)$", EXAMPLE, re.MULTILINE)
    return bytes.fromhex("".join(rows))


def number(data: bytes, fields: list[Field], word: str, base: int = 0) -> int:
    """Read the field whose text starts with a word."""
    [(offset, size)] = [(o, s) for o, s, text in fields if text.startswith(word)]
    return int.from_bytes(data[base + offset : base + offset + size], "big")


def test_fields_follow_each_other_without_gaps() -> None:
    for title, size in (("File header", FILE_HEADER_BYTES), ("Record", RECORD_HEADER_BYTES)):
        fields = table(title)
        ends = [offset + size for offset, size, _ in fields]
        assert [offset for offset, _, _ in fields] == [0, *ends][: len(fields)], title
        assert ends[-1] == size


def test_the_file_header_is_as_the_table_says() -> None:
    data, fields = dump(), table("File header")
    assert data[:8] == b"QuireLog"
    assert number(data, fields, "format version") == FORMAT_VERSION
    assert number(data, fields, "file number") == 1
    assert number(data, fields, "salt") == SALT
    assert number(data, fields, "number of the first group") == 2
    assert number(data, fields, "CRC of the 60 bytes") == crc32c.crc32c(data[:60])


def test_records_are_as_the_table_says() -> None:
    data, fields = dump(), table("Record")
    position, found = FILE_HEADER_BYTES, []
    while position < len(data):
        assert data[position : position + 4] == b"Qrec"
        size = number(data, fields, "size of the body", position)
        end = position + RECORD_HEADER_BYTES + size
        crc = crc32c.crc32c(data[position + 8 : end], crc32c.crc32c(SALT.to_bytes(8, "big")))
        assert number(data, fields, "CRC of bytes 8", position) == crc
        assert number(data, fields, "offset of this record", position) == position
        body = data[position + RECORD_HEADER_BYTES : end]
        found.append((number(data, fields, "kind", position), body))
        position = end
    kinds = dict(re.findall(r"^\| (\d) ([A-Z_]+) \|", TEXT, re.MULTILINE))
    assert kinds == {str(int(kind)): kind.name for kind in Kind}
    (_, key), (_, entry), (_, fence), (_, deletion) = found
    assert [kinds[str(kind)] for kind, _ in found] == ["LEDGER", "ENTRY", "FENCE", "DELETE"]
    assert key == fence == (7).to_bytes(8, "big") + KEY
    assert entry[:16] == (7).to_bytes(8, "big") + bytes(8)
    assert entry.endswith(b"quire")
    assert unpack_deletion(deletion) == (L8, Deletion(True, TIME_MS))


def test_our_code_reads_it() -> None:
    data = dump()
    scan = LogScan(
        lambda position, size: data[position : position + size], len(data), seed=seed_of(SALT)
    )
    records = list(scan)
    assert [record.group for record in records] == [2, 2, 3, 3]  # type: ignore[union-attr]
    assert (scan.end, scan.is_torn) == (len(data), False)


def test_our_code_writes_it() -> None:
    log = AppendLog(LogPosition(1, 0), group=2, salt=SALT, file_bytes_max=1 << 20, creates_after=0)
    codec = EntryCodec(L7, DigestType.CRC32C, b"")
    log.append(Kind.LEDGER, pack_ledger(L7, KEY))
    place = log.append(Kind.ENTRY, b"".join(codec.seal(EntryId(0), NO_ENTRY, 5, [b"quire"])))
    first = log.take()
    log.append(Kind.FENCE, pack_ledger(L7, KEY))
    log.append(Kind.DELETE, pack_deletion(L8, Deletion(True, TIME_MS)))
    second = log.take()
    written = b"".join(map(bytes, [*first.buffers, *second.buffers]))
    assert written == dump()
    contents = Contents(rng())
    index = Index(MemoryKeyValues(contents, wipe=False))
    index.write(
        [(L7, EntryId(0), place)],
        [(L7, LedgerRecord(KEY, True, None))],
        second.end,
        deletions=[(L8, Deletion(True, TIME_MS))],
    )
    tally = Tally()
    tally.end = second.end.position
    tally.add(L7, 200)
    tally.add_deletion(TIME_MS)
    index.set_tallies([(1, tally)])
    rows = re.findall(r"^    ([0-9a-f]+) = ([0-9a-f]+)  # (.+)$", EXAMPLE, re.MULTILINE)
    shown = {bytes.fromhex(key): bytes.fromhex(value) for key, value, _ in rows}
    kept = dict(MemoryKeyValues(contents, wipe=False).scan(b"\x00", b"\xff"))
    assert shown == kept
    tags = {key[:1].decode() for key in shown}
    assert tags == set(re.findall(r"^\| `(.)`", TEXT.partition("## Index")[2], re.MULTILINE))


def test_the_checkpoint_is_read_and_written() -> None:
    lines = re.search(r"^    (\{.+\})\n    ([0-9a-f]{8})$", EXAMPLE, re.MULTILINE)
    assert lines is not None
    data = f"{lines[1]}\n{lines[2]}\n".encode()
    checkpoint = Checkpoint(
        SALT,
        LogPosition(2, 64),
        9,
        (LogFile(1, len(dump())), LogFile(FIRST_COPY, 4096), LogFile(2, 0)),
        (Damage(1, 100, 140),),
    )
    assert decode_checkpoint(data) == checkpoint
    assert checkpoint.encode() == data
    section = TEXT.partition("## CHECKPOINT")[2].partition("## Index")[0]
    assert set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) == set(
        re.findall(r'"(\w+)":', lines[1])
    )

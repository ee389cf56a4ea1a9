"""Bytes of a log file: pinned vectors, round trips, and refusal of anything altered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import LogIncomplete
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    FIRST_COPY,
    RECORD_HEADER_BYTES,
    Deletion,
    FileHeader,
    Kind,
    Location,
    entry_body,
    file_name,
    file_number,
    ids_of,
    is_copy,
    ledger_of,
    pack_deletion,
    pack_ledger,
    pack_record_header,
    seed_of,
    unpack_deletion,
    unpack_file_header,
    unpack_ledger,
    unpack_record,
    unpack_record_header,
)
from client.ids import LedgerId

SEED = seed_of(0x1122334455667788)


def record(body: bytes = b"body", position: int = 64) -> bytes:
    return pack_record_header(SEED, Kind.ENTRY, 5, 64, position, body) + body


def test_bytes_are_pinned() -> None:
    """These bytes are on disks: if this test fails, the format version must change."""
    assert FileHeader(3, 0x1122334455667788, 9, 4096).pack().hex() == (
        "51756972654c6f67" "00000001" "00000003" "1122334455667788" "0000000000000009"
        "0000000000001000" + "00" * 20 + "e05b4980"
    )  # fmt: skip
    assert record().hex() == (
        "51726563" "e27f4f19" "00000004" "01000000" "0000000000000005" "00000040" "00000040"
        "626f6479"
    )  # fmt: skip
    assert (len(record()), FILE_HEADER_BYTES) == (RECORD_HEADER_BYTES + 4, 64)


def test_file_header_round_trip_and_damage() -> None:
    header = FileHeader(3, 7, 9, 4096)
    packed = header.pack()
    assert unpack_file_header(packed) == header
    assert unpack_file_header(packed[:63]) is None
    assert unpack_file_header(bytes(64)) is None
    for position in range(64):
        damaged = bytearray(packed)
        damaged[position] ^= 1
        assert unpack_file_header(damaged) is None


def test_newer_file_format_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("bookie.storage.core.append_log.FORMAT_VERSION", 2)
    newer = FileHeader(3, 7, 9, 4096).pack()
    monkeypatch.undo()
    with pytest.raises(LogIncomplete, match="format 2"):
        unpack_file_header(newer)


@given(st.binary(max_size=100), st.sampled_from(list(Kind)), st.integers(0, 2**31))
def test_record_round_trip(body: bytes, kind: Kind, position: int) -> None:
    packed = pack_record_header(SEED, kind, 2**40, position, position, body) + body
    found = unpack_record(memoryview(b"xx" + packed + b"yy"), SEED, 2)
    assert found == (kind, 2**40, position, position, body)
    assert found is not None
    assert found.end == position + len(packed) == Location(1, position, len(body)).end


def test_any_flipped_bit_is_found() -> None:
    packed = record()
    for position in range(len(packed)):
        damaged = bytearray(packed)
        damaged[position] ^= 0x40
        assert unpack_record(memoryview(damaged), SEED) is None


def test_cut_or_foreign_records_are_refused() -> None:
    packed = record()
    for size in range(len(packed)):
        assert unpack_record(memoryview(packed[:size]), SEED) is None
    assert unpack_record(memoryview(packed), seed_of(1)) is None


def test_implausible_headers_are_refused_without_their_body() -> None:
    packed = bytearray(record())
    packed[8:12] = (2**31).to_bytes(4, "big")
    assert unpack_record_header(packed) is None
    packed = bytearray(record())
    packed[12] = 200
    assert unpack_record_header(packed) is None


def test_file_names() -> None:
    assert file_name(12) == "log/0000000012.log"
    assert file_number("log/0000000012.log") == 12
    for other in ("log/x.log", "log/12", "VERSION", "12.log", "log/12.log.new", "log/.log"):
        assert file_number(other) is None


def test_copies_are_known_by_their_numbers() -> None:
    assert [is_copy(number) for number in (1, FIRST_COPY - 1, FIRST_COPY, 2**32 - 1)] == [
        False, False, True, True
    ]  # fmt: skip
    assert file_number(file_name(FIRST_COPY)) == FIRST_COPY


def test_deletion_bodies() -> None:
    body = pack_deletion(LedgerId(7), Deletion(True, 1_700_000_000_000))
    assert body.hex() == "0000000000000007" + "01" + "0000018bcfe56800"
    assert unpack_deletion(body) == (7, (True, 1_700_000_000_000))
    assert ledger_of(body) == 7


def test_bodies() -> None:
    body = pack_ledger(LedgerId(7), b"key")
    assert unpack_ledger(body) == (7, b"key")
    assert ledger_of(body) == 7
    assert ids_of(bytes(7) + b"\x07" + bytes(7) + b"\x05rest") == (7, 5)


def test_an_entry_is_taken_for_nothing_else_and_nothing_else_for_it() -> None:
    packed = record()
    found = entry_body(memoryview(packed), SEED, 64, 4)
    assert found == b"body"
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0x01
        assert entry_body(memoryview(damaged), SEED, 64, 4) is None
    for size in range(len(packed)):
        assert entry_body(memoryview(packed[:size]), SEED, 64, 4) is None
    ledger = pack_record_header(SEED, Kind.LEDGER, 5, 64, 64, b"body") + b"body"
    assert entry_body(memoryview(ledger), SEED, 64, 4) is None
    assert entry_body(memoryview(packed), seed_of(1), 64, 4) is None
    assert entry_body(memoryview(packed), SEED, 65, 4) is None
    assert entry_body(memoryview(packed + b"y"), SEED, 64, 5) is None

"""What the oracle takes for durable: whole records, also those that a torn write leaves."""

from __future__ import annotations

import pytest

from bookie.core.log_format import Kind, pack_ledger, pack_record_header, seed_of
from client.ids import LedgerId
from tests.simulation.oracle import mark, whole_records_bytes

_SEED = seed_of(7)


def _record(kind: Kind, body: bytes, position: int) -> bytes:
    return pack_record_header(_SEED, kind, 1, 0, position, body) + body


def test_a_record_that_is_cut_off_is_not_durable_and_those_before_it_are() -> None:
    entry = _record(Kind.ENTRY, bytes(44) + mark(3, 1, 100), 0)
    fence = _record(Kind.FENCE, pack_ledger(LedgerId(3), b"key"), len(entry))
    log = bytearray(entry + fence)
    assert whole_records_bytes(log) == len(log)
    for cut in range(len(entry) + 1, len(log)):
        assert whole_records_bytes(log[:cut]) == pytest.approx(len(entry), abs=3)
    for cut in range(4, len(entry)):
        assert whole_records_bytes(log[:cut]) == 0


def test_what_comes_before_the_first_record_stays() -> None:
    record = _record(Kind.FENCE, pack_ledger(LedgerId(3), b"key"), 64)
    assert whole_records_bytes(bytearray(bytes(64) + record)) == 64 + len(record)
    assert whole_records_bytes(bytearray(bytes(64) + record[:40])) == 64

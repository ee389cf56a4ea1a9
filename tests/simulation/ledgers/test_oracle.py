"""What the oracle takes for durable, and what it expects of bookies that come and go."""

from __future__ import annotations

import random

import pytest

from bookie.storage.core.append_log import Kind, pack_ledger, pack_record_header, seed_of
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.metadata import paths
from tests.simulation.bookies.durable_records import mark, whole_records_bytes
from tests.simulation.ledgers.oracle import LedgerOracle
from tests.simulation.machine.loop import SimLoop

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


def test_a_new_member_of_a_closed_ledger_is_asked_for_its_share_only() -> None:
    """Cluster seed 577: a late recovery had written entry 1 to a bookie that was none."""
    a, b, c, late = (BookieId(name) for name in "abcd")
    opened = LedgerMetadata(
        ensemble_size=3, write_quorum=2, ack_quorum=2,
        fragments=(Fragment(EntryId(0), (a, b, c)),),
    )  # fmt: skip
    closed = opened.closed(EntryId(1), 2)
    oracle = LedgerOracle(SimLoop(random.Random(1)))
    path = paths.ledger(LedgerId(2))
    oracle.node_made(path, metadata_codec.encode(opened))
    oracle.ledger(2).sent += [b"0", b"1"]
    for bookie in (a, b, c):
        oracle.bookie(bookie).durable |= {(2, 0), (2, 1)}
        oracle.bookie(bookie).stored[2] = {0: 1, 1: 2}
    oracle.node_changed(path, metadata_codec.encode(closed))
    stranger = oracle.bookie(late)
    stranger.stored[2] = {0: 3, 1: 3}
    stranger.fenced_at[2] = 3
    repaired = closed.with_members(EntryId(0), (late, b, c))
    oracle.node_changed(path, metadata_codec.encode(repaired))
    assert stranger.stored[2] == {0: 3}
    assert 2 not in stranger.fenced_at
    assert oracle.bookie(b).stored[2] == {0: 1, 1: 2}
    assert 2 not in oracle.bookie(a).stored

"""Plain reads: order, fail-over, verdict."""

from __future__ import annotations

import math

import pytest

from client.errors import (
    BookieTimeout,
    BookieUnavailable,
    DigestMismatch,
    LedgerError,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
)
from client.ids import BookieId, EntryId
from client.ledger.core.reads import EntryRead, Rank, Speculation, read_order

B = [BookieId(f"b{i}") for i in range(4)]
NEVER = Speculation(0.0, 0.0)


def test_read_order_is_the_write_set() -> None:
    assert read_order(B, (3, 0, 1), lambda bookie: Rank.GOOD) == [B[3], B[0], B[1]]


def test_read_order_goes_by_rank_first() -> None:
    """Within a rank the write set's order stays, so that reads go on being spread."""
    ranks = {B[0]: Rank.SLOW, B[1]: Rank.GOOD, B[2]: Rank.SLOW, B[3]: Rank.UNREACHABLE}
    assert read_order(B, (3, 2, 1, 0), ranks.__getitem__) == [B[1], B[2], B[0], B[3]]
    assert sorted(Rank) == [
        Rank.LOCAL,
        Rank.GOOD,
        Rank.READ_ONLY,
        Rank.SLOW,
        Rank.UNREGISTERED,
        Rank.UNREACHABLE,
    ]


def test_read_next_asks_one_after_the_other() -> None:
    read = EntryRead(EntryId(4), [B[0], B[1], B[2]], NEVER, 0.0)
    assert read.first == B[0]
    assert read.on_failed(B[0], DigestMismatch("bad"), 0.0) == B[1]
    assert read.on_failed(B[1], NoSuchEntry("none"), 0.0) == B[2]
    assert not read.has_failed
    assert read.on_failed(B[2], BookieTimeout("late"), 0.0) is None
    assert read.has_failed


def test_read_speculate_asks_beside_whoever_is_silent() -> None:
    """READ-SPECULATE: waits double up to a limit, and end when all were asked."""
    read = EntryRead(EntryId(4), B, Speculation(1.0, 3.0), 100.0)
    assert (read.due_s, read.silent) == (101.0, [B[0]])
    assert read.on_silence(101.0) == B[1]
    assert (read.due_s, read.silent) == (103.0, [B[0], B[1]])
    assert read.on_silence(103.0) == B[2]
    assert read.due_s == 106.0
    assert read.on_silence(106.0) == B[3]
    assert read.due_s == math.inf
    assert read.on_silence(109.0) is None


def test_read_speculate_is_over_only_when_everybody_failed() -> None:
    read = EntryRead(EntryId(4), [B[0], B[1]], Speculation(1.0, 1.0), 0.0)
    assert read.on_silence(1.0) == B[1]
    assert read.on_failed(B[1], NoSuchEntry("none"), 1.5) is None
    assert not read.has_failed, "b0 may still have it"
    assert read.silent == [B[0]]
    assert read.on_failed(B[0], BookieTimeout("late"), 5.0) is None
    assert read.has_failed


def test_without_read_speculate_nothing_is_ever_due() -> None:
    assert EntryRead(EntryId(4), B, NEVER, 0.0).due_s == math.inf
    assert EntryRead(EntryId(4), B[:1], Speculation(1.0, 1.0), 0.0).due_s == math.inf


def verdict_of(*errors: LedgerError) -> LedgerError:
    read = EntryRead(EntryId(4), B[: len(errors)], NEVER, 0.0)
    for bookie, error in zip(B, errors, strict=False):
        read.on_failed(bookie, error, 0.0)
    assert read.has_failed
    return read.verdict()


def test_read_none_when_every_replica_says_so() -> None:
    verdict = verdict_of(NoSuchEntry("a"), NoSuchLedger("b"), NoSuchEntry("c"))
    assert isinstance(verdict, NoSuchEntry)


@pytest.mark.parametrize("other", [BookieUnavailable("gone"), BookieTimeout("t"), ReadFailed("io")])
def test_read_none_never_when_one_could_not_say(other: LedgerError) -> None:
    assert not isinstance(verdict_of(NoSuchEntry("a"), other, NoSuchEntry("c")), NoSuchEntry)


def test_read_error_prefers_what_tells_more() -> None:
    digest = DigestMismatch("bad")
    assert verdict_of(BookieUnavailable("gone"), digest, BookieTimeout("late")) is digest
    assert isinstance(verdict_of(NoSuchEntry("a"), BookieUnavailable("gone")), ReadFailed)

"""Plain reads: order, fail-over, verdict."""

from __future__ import annotations

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
from client.ledger.core.reads import EntryRead, read_order

B = [BookieId(f"b{i}") for i in range(4)]


def test_read_order_is_the_write_set() -> None:
    assert read_order(B, (3, 0, 1), lambda bookie: False) == [B[3], B[0], B[1]]


def test_read_order_puts_the_unreachable_last() -> None:
    assert read_order(B, (3, 0, 1), lambda bookie: bookie in (B[3], B[0])) == [B[1], B[3], B[0]]


def test_read_next_asks_one_after_the_other() -> None:
    read = EntryRead(EntryId(4), [B[0], B[1], B[2]])
    assert read.first == B[0]
    assert read.on_failed(DigestMismatch("bad")) == B[1]
    assert read.on_failed(NoSuchEntry("none")) == B[2]
    assert read.on_failed(BookieTimeout("late")) is None


def verdict_of(*errors: LedgerError) -> LedgerError:
    read = EntryRead(EntryId(4), B[: len(errors)])
    for error in errors:
        following = read.on_failed(error)
    assert following is None
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

"""Quorum LAC read."""

from __future__ import annotations

from client.errors import BookieTimeout, BookieUnavailable
from client.ids import NO_ENTRY, EntryId
from client.ledger.core.ledger_metadata import Schedule
from client.ledger.core.reads import LacQuorum


def test_lac_coverage_takes_the_highest_of_a_covering_set() -> None:
    quorum = LacQuorum(Schedule(3, 3, 2))
    quorum.on_known(0, EntryId(7))
    assert not quorum.covered
    quorum.on_known(2, EntryId(4))
    assert quorum.covered
    assert quorum.lac == 7
    assert quorum.failure is None


def test_lac_coverage_counts_bookies_that_have_nothing() -> None:
    quorum = LacQuorum(Schedule(3, 3, 2))
    quorum.on_known(0)
    quorum.on_known(1)
    assert quorum.covered
    assert quorum.lac == NO_ENTRY


def test_lac_coverage_does_not_count_errors() -> None:
    quorum = LacQuorum(Schedule(3, 3, 2))
    late = BookieTimeout("late")
    quorum.on_unknown(0, late)
    quorum.on_known(1, EntryId(3))
    assert quorum.failure is None, "b2 was not heard"
    quorum.on_unknown(2, BookieUnavailable("gone"))
    assert not quorum.covered
    assert quorum.failure is late


def test_one_dead_bookie_does_not_block_coverage() -> None:
    """Issue 1067."""
    quorum = LacQuorum(Schedule(3, 3, 2))
    quorum.on_unknown(1, BookieUnavailable("gone"))
    quorum.on_known(0)
    quorum.on_known(2)
    assert quorum.covered


def test_an_ack_quorum_of_one_needs_everybody() -> None:
    """Issues 2273, 3952: the documented price of Qa = 1."""
    quorum = LacQuorum(Schedule(3, 3, 1))
    quorum.on_known(0)
    quorum.on_known(1)
    assert not quorum.covered
    quorum.on_unknown(2, BookieUnavailable("gone"))
    assert quorum.failure is not None

"""Decisions of a repair: what is settled, what is missing, what the metadata says afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.autorecovery.core.repair import (
    Extent,
    loss_of,
    settled_extents,
    still_in_use,
    with_replacements,
    writer_left,
)
from client.errors import LocalProtocolError
from client.ids import BookieId, EntryId
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, LedgerState

A, B, C, D = (BookieId(f"{name}:1") for name in "abcd")
ALL = (A, B, C, D)
OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(4), (A, B, D))),
)
CLOSED = OPEN.closed(EntryId(5), 100)
FIRST = Extent(EntryId(0), EntryId(3), (A, B, C))


def test_the_last_fragment_belongs_to_the_writer_until_the_ledger_is_closed() -> None:
    assert settled_extents(OPEN) == [FIRST]
    assert settled_extents(OPEN.in_recovery()) == [FIRST]
    assert settled_extents(CLOSED) == [FIRST, Extent(EntryId(4), EntryId(5), (A, B, D))]


def test_a_fragment_without_entries_is_settled_too() -> None:
    empty = OPEN.closed(EntryId(3), 100)
    assert settled_extents(empty)[-1] == Extent(EntryId(4), EntryId(3), (A, B, D))


def test_members_hold_what_their_write_sets_say() -> None:
    schedule = OPEN.schedule
    assert list(FIRST.entries_of((1,), schedule)) == [0, 1, 3]
    assert list(FIRST.entries_of((0, 1), schedule)) == [0, 1, 2, 3]
    assert list(Extent(EntryId(4), EntryId(3), (A, B, D)).entries_of((0,), schedule)) == []


def test_a_member_that_is_gone_is_replaced() -> None:
    loss = loss_of(FIRST, OPEN.schedule, {}, writable=(A, C), readonly=())
    assert loss is not None
    assert (loss.gone, loss.holes) == ((1,), {})


def test_a_member_with_holes_stays_and_gets_each_entry() -> None:
    lacking = {A: [EntryId(2)], B: [EntryId(0), EntryId(3)], C: [EntryId(2)]}
    loss = loss_of(FIRST, OPEN.schedule, lacking, writable=ALL, readonly=())
    assert loss is not None
    assert loss.gone == ()
    assert loss.holes == {0: (1,), 2: (0, 2), 3: (1,)}


def test_a_read_only_member_is_replaced_only_if_it_has_holes() -> None:
    schedule = OPEN.schedule
    assert loss_of(FIRST, schedule, {}, writable=(A, C), readonly=(B,)) is None
    loss = loss_of(FIRST, schedule, {B: [EntryId(0)]}, writable=(A, C), readonly=(B,))
    assert loss is not None
    assert (loss.gone, loss.holes) == ((1,), {})


def test_whole_extents_lack_nothing() -> None:
    assert loss_of(FIRST, OPEN.schedule, {A: []}, writable=ALL, readonly=()) is None


def test_replacements_keep_everything_else() -> None:
    for metadata in (OPEN, OPEN.in_recovery(), CLOSED):
        changed = with_replacements(metadata, FIRST, {1: D})
        assert changed is not None
        fragments = (Fragment(EntryId(0), (A, D, C)), metadata.fragments[1])
        assert changed == replace(metadata, fragments=fragments)


def test_nothing_is_written_over_members_that_changed_meanwhile() -> None:
    changed = with_replacements(CLOSED, FIRST, {1: D})
    assert changed is not None
    assert with_replacements(changed, FIRST, {1: D}) is None


def test_a_writers_fragment_is_not_replaced() -> None:
    with pytest.raises(LocalProtocolError):
        OPEN.with_members(EntryId(4), (A, B, C))
    assert OPEN.closed(EntryId(5), 1).with_members(EntryId(4), (A, B, C)).is_closed


def test_an_ensemble_holds_nobody_twice() -> None:
    with pytest.raises(LocalProtocolError):
        with_replacements(CLOSED, FIRST, {1: A})


def test_a_writer_left_when_its_last_ensemble_lost_members() -> None:
    assert writer_left(OPEN, (A, B))
    assert not writer_left(OPEN, (A, B, D))  # C is a member of the settled fragment only
    assert not writer_left(CLOSED, ())
    assert OPEN.in_recovery().state is LedgerState.IN_RECOVERY
    assert writer_left(OPEN.in_recovery(), (A, B))


def test_marks_of_a_live_last_ensemble_stay() -> None:
    assert still_in_use(OPEN, (D,))
    assert not still_in_use(OPEN, (C,))
    assert not still_in_use(CLOSED, (D,))

"""Recovery, rule by rule. Rule names as in `recovery.py` and PROTOCOL.md."""

from __future__ import annotations

import pytest

from client.errors import (
    BookieTimeout,
    BookieUnavailable,
    DataUnknown,
    DigestMismatch,
    LedgerError,
    LedgerFenced,
    NoSuchLedger,
    ReadFailed,
    RecoveryInconclusive,
    UnauthorizedAccess,
)
from client.ids import EntryId
from client.ledger.core.adds import ChangeEnsemble, SendAdd
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.ledger.core.recovery import (
    FenceRead,
    Recovered,
    RecoveryState,
    close_recovered,
    mark_in_recovery,
)
from tests.unit.client.ledger.core.recovery_driver import (
    NONE,
    B,
    Run,
    entry,
    failure,
    ledger,
    reads,
)


def test_everybody_in_the_last_ensemble_is_fenced() -> None:
    run = Run(ledger((3, 3, 2), (9, [B[3], B[1], B[4]])))
    assert run.started == [FenceRead(0, B[3]), FenceRead(1, B[1]), FenceRead(2, B[4])]


def test_rec_fence_no_read_before_coverage() -> None:
    run = Run(ledger())
    assert run.fenced(0, entry(5, 4)) == []
    assert run.core.state is RecoveryState.FENCING
    assert reads(run.fenced(2, NONE)) == [(5, "b2"), (5, "b0"), (5, "b1")]
    assert run.fenced(1, entry(9, 8)) == [], "late: coverage was there"


def test_rec_fence_a_wrong_digest_counts_but_not_its_lac() -> None:
    run = Run(ledger())
    run.fenced(0, DigestMismatch("bad"))
    assert reads(run.fenced(1, NoSuchLedger("none")))[0] == (0, "b0")


@pytest.mark.parametrize(
    "error", [BookieTimeout("t"), ReadFailed("io"), DataUnknown("limbo"), BookieUnavailable("x")]
)
def test_rec_fence_without_coverage_recovery_fails(error: LedgerError) -> None:
    run = Run(ledger())
    run.fenced(0, entry(5, 4))
    assert run.fenced(1, error) == []
    assert isinstance(failure(run.fenced(2, error)), RecoveryInconclusive)
    assert run.core.state is RecoveryState.DONE


def test_a_wrong_password_ends_it_at_once() -> None:
    assert isinstance(failure(Run(ledger()).fenced(0, UnauthorizedAccess("u"))), UnauthorizedAccess)


def test_rec_start_after_the_highest_lac() -> None:
    run = Run(ledger())
    run.fenced(0, entry(3, 2))
    assert reads(run.fenced(1, entry(8, 7)))[0] == (8, "b2")


def test_rec_start_never_below_the_last_fragment() -> None:
    """REC-START (2615): the last fragment is empty and nobody in it knows a LAC."""
    run = Run(ledger((3, 3, 2), (9, [B[3], B[4], B[5]])))
    run.fenced(0, NONE)
    effects = run.fenced(1, NoSuchLedger("none"))
    assert reads(effects) == [(9, "b3"), (9, "b4"), (9, "b5")]


def test_rec_positive_one_copy_is_written_back() -> None:
    run = Run(ledger())
    run.fence_all(4)
    run.read(5, NONE)
    effects = run.read(5, entry(5, 3, length=60))
    sent = effects[0]
    assert isinstance(sent, SendAdd)
    assert sorted(sent.indices) == [0, 1, 2]
    assert sent.entry.request is not None
    assert sent.entry.request.recovery
    assert run.read(5, NONE) == [], "late"


def test_rec_frozen_lac() -> None:
    """REC-FROZEN-LAC: entries are rewritten with the LAC recovery started from."""
    run = Run(ledger())
    run.fence_all(4)
    for entry_id in (5, 6):
        run.read(entry_id, entry(entry_id, 3))
        run.stored(entry_id, 0)
        run.stored(entry_id, 1)
    assert run.sealed == [(5, 4, 60), (6, 4, 70)]


def test_rec_negative_needs_qw_minus_qa_plus_1() -> None:
    run = Run(ledger())
    run.fence_all(4)
    assert run.read(5, NONE) == []
    effects = run.read(5, NoSuchLedger("none"))
    assert reads(effects) == [(4, "b1"), (4, "b2"), (4, "b0")], "the length is still to be found"


def test_rec_negative_one_dead_bookie_does_not_block() -> None:
    """Issue 1067."""
    run = Run(ledger())
    run.fence_all(-1)
    run.read(0, BookieUnavailable("gone"))
    run.read(0, NONE)
    assert run.read(0, NONE) == [Recovered(EntryId(-1), 0, ledger().fragments)]


@pytest.mark.parametrize(
    "error", [BookieTimeout("t"), ReadFailed("io"), DataUnknown("limbo"), DigestMismatch("bad")]
)
def test_rec_inconclusive_never_guesses(error: LedgerError) -> None:
    """REC-INCONCLUSIVE (2908): damage and silence are neither yes nor no."""
    run = Run(ledger())
    run.fence_all(4)
    run.read(5, NONE)
    run.read(5, error)
    assert isinstance(failure(run.read(5, error)), RecoveryInconclusive)


def test_rec_inconclusive_beyond_the_end_does_not_matter() -> None:
    run = Run(ledger(), window=2)
    run.fence_all(-1)
    for _ in range(3):
        run.read(1, BookieTimeout("t"))
    assert run.core.state is RecoveryState.READING
    run.read(0, NONE)
    assert run.read(0, NONE) == [Recovered(EntryId(-1), 0, ledger().fragments)]


def test_the_end_waits_for_the_write_back() -> None:
    run = Run(ledger(), window=8)
    run.fence_all(4)
    run.read(6, NONE)
    run.read(6, NONE)
    run.read(5, entry(5, 4, length=64))
    assert run.core.state is RecoveryState.READING
    run.stored(5, 2)
    assert run.stored(5, 1) == [Recovered(EntryId(5), 64, ledger().fragments)]
    assert run.stored(5, 0) == []


def test_rec_write_waits_for_the_ack_quorum_in_order() -> None:
    run = Run(ledger(), window=8)
    run.fence_all(-1)
    for entry_id in (1, 0):
        run.read(entry_id, entry(entry_id))
    for _ in range(2):
        run.read(2, NONE)
    for index in (0, 1):
        assert run.stored(1, index) == []
    run.stored(0, 0)
    assert run.stored(0, 1) == [Recovered(EntryId(1), 20, ledger().fragments)]


def test_read_ahead_stays_in_its_window() -> None:
    run = Run(ledger(), window=2)
    run.fenced(0, entry(9))
    effects = run.fenced(1, entry(9))
    assert {entry_id for entry_id, _ in reads(effects)} == {0, 1}
    assert reads(run.read(0, entry(0))) == []
    run.stored(0, 0)
    assert {entry_id for entry_id, _ in reads(run.stored(0, 1))} == {2}


def test_read_ahead_stops_one_past_what_anybody_is_known_to_have() -> None:
    run = Run(ledger(), window=8)
    effects = run.fence_all(4)
    assert {entry_id for entry_id, _ in reads(effects)} == {5, 6}
    assert {entry_id for entry_id, _ in reads(run.read(6, entry(6, 4)))} == {7}
    assert reads(run.read(5, entry(5, 4))) == []


def test_read_ahead_follows_what_a_late_fence_answer_tells() -> None:
    run = Run(ledger(), window=8)
    run.fence_all(4)
    run.fenced(2, entry(9, 4))
    assert {entry_id for entry_id, _ in reads(run.read(5, NONE))} == {7, 8, 9, 10}


def test_rec_snapshot_reads_never_follow_a_replacement() -> None:
    run = Run(ledger())
    run.fence_all(-1)
    run.read(0, entry(0))
    assert run.failed(0, 1) == [ChangeEnsemble({1: B[1]})]
    effects = run.changed(B[0], B[3], B[2])
    assert isinstance(effects[0], SendAdd)
    assert list(effects[0].indices) == [1]
    run.stored(0, 0)
    assert reads(run.stored(0, 1)) == [(1, "b1"), (1, "b2"), (1, "b0")]


def test_rec_write_replacements_become_fragments_at_lac_plus_1() -> None:
    run = Run(ledger(), window=1)
    run.fence_all(-1)
    for entry_id in (0, 1):
        run.read(entry_id, entry(entry_id))
        if entry_id == 1:
            run.failed(1, 1)
            run.changed(B[0], B[3], B[2])
            run.failed(1, 2)
            run.changed(B[0], B[3], B[4])
        run.stored(entry_id, 0)
        run.stored(entry_id, 1)
    run.read(2, NONE)
    effects = run.read(2, NONE)
    assert effects == [
        Recovered(
            EntryId(1),
            20,
            (
                Fragment(EntryId(0), (B[0], B[1], B[2])),
                Fragment(EntryId(1), (B[0], B[3], B[4])),
            ),
        )
    ]


def test_rec_write_replaces_an_empty_last_fragment() -> None:
    run = Run(ledger((3, 3, 2), (9, [B[3], B[1], B[2]])))
    run.fenced(0, NONE)
    run.fenced(1, NONE)
    run.read(9, entry(9))
    run.failed(9, 1)
    run.changed(B[3], B[4], B[2])
    assert run.core.fragments[-1] == Fragment(EntryId(9), (B[3], B[4], B[2]))
    assert len(run.core.fragments) == 2


def test_write_back_that_reaches_no_quorum_fails() -> None:
    run = Run(ledger())
    run.fence_all(-1)
    run.read(0, entry(0))
    run.failed(0, 1)
    run.changed(*run.core.ensemble)
    run.failed(0, 2)
    assert isinstance(failure(run.changed(*run.core.ensemble)), LedgerError)
    assert run.core.state is RecoveryState.DONE


def test_a_fenced_recovery_add_means_the_ledger_was_deleted() -> None:
    run = Run(ledger())
    run.fence_all(-1)
    run.read(0, entry(0))
    effects = run.core.on_failed(EntryId(0), 0, B[0], LedgerFenced("deleted"))
    assert isinstance(failure(effects), LedgerFenced)


def test_length_is_known_from_the_entry_at_lac() -> None:
    run = Run(ledger())
    run.fenced(0, entry(4, 3, length=47))
    run.fenced(1, entry(5, 4, length=99))
    run.read(5, NONE)
    assert run.read(5, NONE) == [Recovered(EntryId(4), 47, ledger().fragments)]


def test_length_is_read_when_nothing_was_recovered() -> None:
    """From the fragment that holds the entry, which may not be the last one."""
    metadata = ledger((3, 3, 2), (9, [B[3], B[4], B[5]]))
    run = Run(metadata)
    run.fenced(0, NONE)
    run.fenced(1, NONE)
    run.read(9, NONE)
    effects = run.read(9, NONE)
    assert reads(effects) == [(8, "b2"), (8, "b0"), (8, "b1")]
    run.read(8, BookieUnavailable("gone"))
    assert run.read(8, entry(8, 7, length=88)) == [Recovered(EntryId(8), 88, metadata.fragments)]


def test_length_unknown_to_everybody_is_0() -> None:
    metadata = ledger((3, 3, 2), (9, [B[3], B[4], B[5]]))
    run = Run(metadata)
    run.fenced(0, NONE)
    run.fenced(1, NONE)
    run.read(9, NONE)
    run.read(9, NONE)
    run.read(8, NONE)
    run.read(8, NONE)
    assert run.read(8, ReadFailed("io")) == [Recovered(EntryId(8), 0, metadata.fragments)]


def test_striped_recovery_asks_each_write_set() -> None:
    run = Run(ledger((4, 2, 2)))
    for member in range(3):
        effects = run.fenced(member, entry(1, 0))
    assert reads(effects) == [(1, "b1"), (1, "b2")]
    run.read(1, NONE)
    assert run.core.state is RecoveryState.MEASURING, "Qw - Qa + 1 is one"


def test_mark_in_recovery() -> None:
    metadata = LedgerMetadata(
        ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(EntryId(0), (B[0],)),)
    )
    marked = mark_in_recovery(metadata)
    assert marked == metadata.in_recovery()
    assert mark_in_recovery(metadata.in_recovery()) is None
    assert mark_in_recovery(metadata.closed(EntryId(1), 1)) is None


def test_rec_close_publishes_fragments_and_end_together() -> None:
    snapshot = ledger()
    fragments = (*snapshot.fragments, Fragment(EntryId(5), (B[0], B[3], B[2])))
    closed = close_recovered(snapshot, snapshot, Recovered(EntryId(6), 70, fragments))
    assert closed == snapshot.with_fragments(fragments).closed(EntryId(6), 70)


def test_rec_close_who_closed_first_is_right() -> None:
    snapshot = ledger()
    end = Recovered(EntryId(6), 70, snapshot.fragments)
    assert close_recovered(snapshot.closed(EntryId(3), 40), snapshot, end) is None


def test_rec_close_starts_over_when_fragments_changed() -> None:
    snapshot = ledger()
    moved = snapshot.with_ensemble(EntryId(0), (B[3], B[1], B[2]))
    assert close_recovered(moved, snapshot, Recovered(EntryId(6), 70, snapshot.fragments)) is None

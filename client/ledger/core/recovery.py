"""Recovery of a ledger: fence its writer, find its end, write the tail back, say how to close.

Covers the rules of recovery. The object is synchronous; it starts from metadata that is
IN_RECOVERY already and ends with `Recovered` (to be written by compare-and-set, see
`close_recovered`) or `RecoveryFailed` (the ledger stays IN_RECOVERY; try again later).

    FENCING    fencing LAC read of the whole last ensemble, until covered
    READING    for e = start + 1, ...: fencing read of e from its whole write set; if it exists,
               recovery add of e; ends at the first e that was never confirmed
    MEASURING  nothing was recovered and the length is not known: read it off entry `start`
    DONE       either way; after success late answers tell which bookies lack entries

Rules, by the names that PROTOCOL.md and the tests use:

- REC-FENCE      no entry is read before the fencing LAC read is covered.
- REC-START      reading starts after max(LAC, first entry of the last fragment - 1) (issue 2615).
- REC-READ-FENCE every recovery read fences too: an add that passes an unfenced bookie after it
                 said "no such entry" could still be confirmed (issue 2614).
- REC-SNAPSHOT   reads go to the ensemble that metadata named when recovery began, never to a
                 replacement chosen by this recovery.
- REC-POSITIVE   one valid copy is enough to keep an entry.
- REC-NEGATIVE   the ledger ends before e only when Qw - Qa + 1 bookies of its write set say they
                 never stored it; errors, timeouts and wrong digests count for neither side.
- REC-INCONCLUSIVE all answered and neither: recovery fails, it never guesses.
- REC-FROZEN-LAC rewritten entries carry the LAC recovery started from, or two recoverers could
                 make entries readable that neither closes over.
- REC-WRITE      every entry kept is written back in order until Qa bookies stored it; failed
                 bookies are replaced, in memory only, from LAC + 1 on.
- HOLES          who could not be fenced, or has not got the last entry before `start` that it is a
                 member for, or failed a recovery add, is told of as `UnderReplicated`: the writer
                 that knew more is gone.
- REC-CLOSE      one CAS publishes the new fragments together with CLOSED; whoever closed first is
                 right, and other fragments than at the start mean starting over.

Entries are read ahead and written back in a pipeline of at most `window` entries, and no further
than one past the last entry that a bookie is known to have: ledgers usually end there, and a read
costs as much when there is nothing.

Sources: BookKeeper protocol text ("Closing a ledger as a reader"), `LedgerRecoveryOp`,
`PendingReadOp`, BookKeeper TLA+ specification.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from client.errors import (
    DigestMismatch,
    LedgerClosed,
    LedgerError,
    NoSuchEntry,
    NoSuchLedger,
    RecoveryInconclusive,
    UnauthorizedAccess,
)
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.adds import (
    AddEffects,
    Adds,
    ChangeEnsemble,
    Confirmed,
    Failed,
    SendAdd,
    UnderReplicated,
)
from client.ledger.core.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    with_fragment,
)
from client.ledger.core.reads import LacQuorum
from client.wire.bookkeeper.entry import Entry


class RecoveryState(enum.Enum):
    """States of a recovery; see the table above."""

    FENCING = "fencing"
    READING = "reading"
    MEASURING = "measuring"
    DONE = "done"


class FenceRead(NamedTuple):
    """Fence the ledger at this member of the last ensemble and read its last entry."""

    member: int
    bookie: BookieId


class RecoveryRead(NamedTuple):
    """Fence the ledger at this bookie and read one entry."""

    entry_id: EntryId
    member: int
    bookie: BookieId


class Recovered(NamedTuple):
    """The ledger's end is known and safe: close it so."""

    last_entry: EntryId
    length: int
    fragments: tuple[Fragment, ...]


class RecoveryFailed(NamedTuple):
    """Recovery gave up; the ledger's end is still open."""

    error: LedgerError


RecoveryEffect = (
    FenceRead
    | RecoveryRead
    | SendAdd
    | ChangeEnsemble
    | Recovered
    | RecoveryFailed
    | UnderReplicated
)
RecoveryEffects = Sequence[RecoveryEffect]


class _Verdict:
    """What is known about one entry."""

    __slots__ = ("entry", "errors", "missing")

    def __init__(self) -> None:
        self.entry: Entry | None = None
        self.missing = 0
        self.errors: list[LedgerError] = []


class Recovery:
    """Recovery of one ledger. Owned and called by one shell only."""

    def __init__(self, snapshot: LedgerMetadata, *, window: int) -> None:
        """`snapshot`: metadata as read back IN_RECOVERY. `window`: entries under way at once."""
        assert snapshot.state is LedgerState.IN_RECOVERY
        self.state = RecoveryState.FENCING
        self.snapshot = snapshot
        self.fragments = snapshot.fragments
        self._schedule = snapshot.schedule
        self._window = window
        self._quorum = LacQuorum(self._schedule)
        self._lengths: dict[EntryId, int] = {}
        """Ledger length by entry id, from the entries that fencing found."""
        self._start: EntryId = NO_ENTRY
        self._adds = self._new_adds()
        self._next_read: EntryId = NO_ENTRY
        self._last_known: EntryId = NO_ENTRY
        """The highest entry that is confirmed, or that some bookie said to have."""
        self._verdicts: dict[EntryId, _Verdict] = {}
        self._end_found = False
        self._last_stored: dict[int, EntryId | None] = {}
        """Last entry by member, from the answers to fencing; None: it could not say."""
        self._has_ended = False
        """Whether it is DONE with success, and holes have not been told of yet."""

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """The ensemble that recovery adds go to."""
        return self._adds.members.ensemble

    def start(self) -> RecoveryEffects:
        """Begin: fence everybody in the last ensemble."""
        ensemble = self.snapshot.last_fragment.ensemble
        return [FenceRead(index, bookie) for index, bookie in enumerate(ensemble)]

    def on_fence_answer(
        self, member: int, answer: Entry | LedgerError, now_s: float
    ) -> RecoveryEffects:
        """Answer to a `FenceRead`: the bookie's last entry, or why there is none."""
        match answer:
            case Entry():
                self._lengths[answer.entry_id] = answer.length
                self._last_stored[member] = answer.entry_id
                self._last_known = max(self._last_known, answer.entry_id)
                self._quorum.on_known(member, answer.lac)
            case NoSuchEntry() | NoSuchLedger():
                self._last_stored[member] = NO_ENTRY
                self._quorum.on_known(member)
            case DigestMismatch():
                self._last_stored[member] = None
                self._quorum.on_known(member)
            case _:
                self._last_stored[member] = None
                self._quorum.on_unknown(member, answer)
        if self.state is not RecoveryState.FENCING:
            return self._tell_holes()
        if isinstance(answer, UnauthorizedAccess):
            return self._fail(answer)
        if self._quorum.covered:
            return self._begin_reading(now_s)
        if self._quorum.failure is None:
            return ()
        return self._fail(RecoveryInconclusive(f"cannot fence enough: {self._quorum.failure}"))

    def on_read_answer(
        self, entry_id: EntryId, answer: Entry | LedgerError, now_s: float
    ) -> RecoveryEffects:
        """Answer to a `RecoveryRead`: the valid entry, or why there is none."""
        verdict = self._verdicts.get(entry_id)
        if verdict is None:
            return ()
        match answer:
            case Entry():
                verdict.entry = answer
                self._last_known = max(self._last_known, entry_id)
            case NoSuchEntry() | NoSuchLedger():
                verdict.missing += 1
            case _:
                verdict.errors.append(answer)
        if self.state is RecoveryState.MEASURING:
            return self._measure(verdict)
        return self._advance(now_s)

    def on_stored(self, entry_id: EntryId, index: int, bookie: BookieId) -> RecoveryEffects:
        """A bookie stored a recovery add; see `Adds.on_stored`."""
        effects = self._carry(self._adds.on_stored(entry_id, index, bookie))
        return [*effects, *self._tell_holes()]

    def on_failed(
        self, entry_id: EntryId, index: int, bookie: BookieId, error: LedgerError
    ) -> RecoveryEffects:
        """A bookie did not store a recovery add; see `Adds.on_failed`."""
        effects = self._carry(self._adds.on_failed(entry_id, index, bookie, error))
        return [*effects, *self._tell_holes()]

    def on_ensemble(self, ensemble: Sequence[BookieId], now_s: float) -> RecoveryEffects:
        """The members that `ChangeEnsemble` named were replaced as far as possible."""
        if tuple(ensemble) != self.ensemble:
            fragment = Fragment(EntryId(self._adds.lac + 1), tuple(ensemble))
            self.fragments = with_fragment(self.fragments, fragment)
        return self._carry(self._adds.on_ensemble(ensemble, now_s))

    def _new_adds(self) -> Adds:
        return Adds(
            self.snapshot.last_fragment.ensemble,
            self._schedule,
            lac=self._start,
            frozen_lac=self._start,
        )

    def _begin_reading(self, now_s: float) -> RecoveryEffects:
        self.state = RecoveryState.READING
        first = self.snapshot.last_fragment.first_entry
        self._start = EntryId(max(self._quorum.lac, first - 1))
        self._next_read = EntryId(self._start + 1)
        self._last_known = max(self._last_known, self._start)
        self._adds = self._new_adds()
        return self._advance(now_s)

    def _advance(self, now_s: float) -> RecoveryEffects:
        """Judge entries in order, write back what exists, read ahead, finish at the end."""
        effects: list[RecoveryEffect] = []
        while self.state is RecoveryState.READING and not self._end_found:
            entry_id = EntryId(self._adds.last_add_pushed + 1)
            verdict = self._verdicts.get(entry_id)
            if verdict is None:
                break
            if verdict.entry is not None:
                del self._verdicts[entry_id]
                effects += self._write_back(verdict.entry, now_s)
            elif verdict.missing >= self._schedule.negatives_needed:
                self._end_found = True
                self._verdicts.clear()
            elif verdict.missing + len(verdict.errors) >= self._schedule.write_quorum:
                cause = verdict.errors[0]
                return self._fail(RecoveryInconclusive(f"entry {entry_id} is unclear: {cause}"))
            else:
                break
        return [*effects, *self._read_ahead(), *self._finish_if_done()]

    def _write_back(self, entry: Entry, now_s: float) -> list[RecoveryEffect]:
        payload = entry.payload
        return list(self._carry(self._adds.add([payload], len(payload), now_s, entry.length)))

    def _read_ahead(self) -> list[RecoveryEffect]:
        effects: list[RecoveryEffect] = []
        if self.state is not RecoveryState.READING or self._end_found:
            return effects
        while self._next_read <= min(self._adds.lac + self._window, self._last_known + 1):
            effects += self._read(self._next_read)
            self._next_read = EntryId(self._next_read + 1)
        return effects

    def _read(self, entry_id: EntryId) -> list[RecoveryEffect]:
        self._verdicts[entry_id] = _Verdict()
        ensemble = self.snapshot.fragment_of(entry_id).ensemble
        indices = self._schedule.write_set(entry_id)
        return [RecoveryRead(entry_id, index, ensemble[index]) for index in indices]

    def _carry(self, add_effects: AddEffects) -> RecoveryEffects:
        """Turn effects of the add pipeline into ours."""
        effects: list[RecoveryEffect] = []
        for effect in add_effects:
            match effect:
                case SendAdd() | ChangeEnsemble():
                    effects.append(effect)
                case Confirmed():
                    effects += [*self._read_ahead(), *self._finish_if_done()]
                case Failed():
                    effects += self._fail(effect.error)
                case UnderReplicated():
                    pass  # told of together with what fencing found, in `_tell_holes`
        return effects

    def _finish_if_done(self) -> RecoveryEffects:
        adds = self._adds
        if self.state is not RecoveryState.READING or not self._end_found:
            return ()
        if adds.lac != adds.last_add_pushed:
            return ()
        if adds.lac > self._start:
            return self._recovered(adds.confirmed_length)
        if self._start == NO_ENTRY:
            return self._recovered(0)
        if self._start in self._lengths:
            return self._recovered(self._lengths[self._start])
        self.state = RecoveryState.MEASURING
        return self._read(self._start)

    def _measure(self, verdict: _Verdict) -> RecoveryEffects:
        """The length of a ledger to which recovery added nothing; 0 if nobody can tell.

        Entry `start` is confirmed, so its absence would be a loss that closing does not make
        worse; failing here would only keep the ledger unreadable.
        """
        if verdict.entry is not None:
            return self._recovered(verdict.entry.length)
        if verdict.missing + len(verdict.errors) < self._schedule.write_quorum:
            return ()
        return self._recovered(0)

    def _recovered(self, length: int) -> RecoveryEffects:
        self.state = RecoveryState.DONE
        self._verdicts.clear()
        end = Recovered(self._adds.lac, length, self.fragments)
        self._adds.fail(LedgerClosed("recovered"))
        self._has_ended = True
        return [end, *self._tell_holes()]

    def _fail(self, error: LedgerError) -> RecoveryEffects:
        if self.state is RecoveryState.DONE:
            return ()
        self.state = RecoveryState.DONE
        self._verdicts.clear()
        self._adds.fail(error)
        return [RecoveryFailed(error)]

    def _tell_holes(self) -> RecoveryEffects:
        """Tell who lacks entries, once every bookie has said its last (rule HOLES)."""
        is_heard = len(self._last_stored) == self._schedule.ensemble_size
        if not (self._has_ended and is_heard and self._adds.is_settled):
            return ()
        self._has_ended = False
        found = dict.fromkeys(
            bookie
            for member, bookie in enumerate(self.snapshot.last_fragment.ensemble)
            if self._is_lacking(member)
        )
        found.update(dict.fromkeys(self._adds.holes.counts))
        return [UnderReplicated(tuple(found))] if found else ()

    def _is_lacking(self, member: int) -> bool:
        """Whether a member of the last ensemble seems to lack entries up to `start`."""
        last_stored = self._last_stored[member]
        first = self.snapshot.last_fragment.first_entry
        for entry_id in range(self._start, first - 1, -1):
            if member in self._schedule.write_set(EntryId(entry_id)):
                return last_stored is None or last_stored < entry_id
        return False


def mark_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata | None:
    """Return OPEN metadata marked IN_RECOVERY, None if it is marked or closed already."""
    return metadata.in_recovery() if metadata.state is LedgerState.OPEN else None


def close_recovered(
    metadata: LedgerMetadata, snapshot: LedgerMetadata, end: Recovered
) -> LedgerMetadata | None:
    """Return metadata closed at the recovered end (rule REC-CLOSE).

    None when there is nothing to write: somebody closed it first, and then that end is the
    truth, or its fragments are not the snapshot's any more, and then recovery starts over.
    """
    if metadata.state is not LedgerState.IN_RECOVERY or metadata.fragments != snapshot.fragments:
        return None
    return metadata.with_fragments(end.fragments).closed(end.last_entry, end.length)

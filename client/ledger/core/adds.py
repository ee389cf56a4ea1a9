"""The add pipeline of one ledger: from an entry's sending to its confirmation, in entry order.

Covers the rules of adding. The object is synchronous and does no I/O: inputs are calls, effects
are returned and carried out by the shell in order, before its next input. The writer and the
recovery of a ledger both use it.

    state      input                          becomes
    OPEN       failure of an unconfirmed add  CHANGING  + ChangeEnsemble
    OPEN       add after a late failure       CHANGING  + ChangeEnsemble
    CHANGING   ensemble settled               OPEN      + re-sends, then Confirmed
    CHANGING   ensemble settled, more failed  CHANGING  + ChangeEnsemble
    any        fenced, unauthorized, change failed, too late, fail()   FAILED + Failed
    FAILED     last answer to a confirmed add FAILED    + UnderReplicated, if anybody lacks entries

Rules, by the names that PROTOCOL.md and the tests use:

- ADD-ORDER   an add is confirmed when Qa bookies of its write set stored it and every earlier
              add is confirmed; LAC is the last confirmed one and only moves here.
- ADD-LAC     an entry carries the LAC at the time of its first sending; re-sends repeat it.
- ADD-STALE   an answer from a bookie that is no longer at that index is ignored.
- CHANGE-HOLD nothing is confirmed while an ensemble change runs, so that LAC + 1 stays the first
              entry of the new fragment (issue 4651 and its family).
- CHANGE-UNSET acks of replaced bookies are struck from every unconfirmed add, and the entries
              sent to the new ones, for all adds before the first is confirmed (3005).
- CHANGE-DRAIN after a change the queue is drained even if nothing was sent again (1857, 4459).
- CHANGE-AGAIN bookies that failed meanwhile are replaced before anything is sent again (1886).
- ADD-LATE    a failure of an add that has its quorum is remembered and acted on with the next add.
- ADD-FENCED  a fenced answer fails every unconfirmed add; the ledger takes no more.
- ADD-BUSY    an add that a bookie sheds for want of room is sent to it again after a pause; only
              one that does nothing else for `busy_timeout_s` has failed (`shed_adds.py`).
- ADD-CHOSEN  the caller may choose entry ids, in any order. One that is pending or confirmed is
              DuplicateEntryId; entries behind a gap wait for it.
- ADD-TIMEOUT with a quorum timeout, the next entry to confirm being unconfirmed for longer fails
              the ledger, whatever it waits for.
- CHANGE-DELAY with `delay_change`, a failed bookie stays as long as the add can reach its quorum
              without it; a read-only one goes at once.
- CHANGE-SUSPEND when no replacement can be found but every write set still reaches Qa without the
              failed bookies, they are suspended instead of failing the ledger: nothing is sent to
              them but a probe every `PROBE_INTERVAL_S`; the first stored probe brings them back.
              What is confirmed meanwhile has Qa copies, as promised, but not Qw. (Beyond Java.)
- HOLES       a member that will not store a confirmed entry of its own is remembered, whatever the
              reason, and told of as `UnderReplicated`: when it takes part again, when others took
              its place, and once at the end. (Beyond Java, which finds some of them by chance.)

Sources: BookKeeper protocol text ("Writing to ledgers"), `PendingAddOp`, `LedgerHandle`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from client.errors import (
    BookieReadOnly,
    DuplicateEntryId,
    IncorrectParameter,
    LedgerError,
    LedgerFenced,
    NotEnoughBookies,
    QuorumTimeout,
    TooManyRequests,
    UnauthorizedAccess,
)
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.holes import Holes
from client.ledger.core.pending_add import AddEntry, PendingAdd
from client.ledger.core.schedule import Schedule
from client.ledger.core.shed_adds import ShedAdds
from client.wire.bookkeeper.messages import Buffer

PROBE_INTERVAL_S: Final = 1.0
"""How often one add is also sent to a suspended bookie, to see whether it is back."""


class AddsState(enum.Enum):
    """States of the pipeline; see the table above."""

    OPEN = "open"
    CHANGING = "changing"
    FAILED = "failed"


class SendAdd(NamedTuple):
    """Send an entry, sealed when it is sent first, to members `indices` of the current ensemble."""

    entry: AddEntry
    indices: Sequence[int]


class Confirmed(NamedTuple):
    """Adds `first`..`last` are confirmed; LAC is `last`."""

    first: EntryId
    last: EntryId


class ChangeEnsemble(NamedTuple):
    """Replace these members of the ensemble from LAC + 1 on, then call `on_ensemble`."""

    failed: Mapping[int, BookieId]


class Failed(NamedTuple):
    """Adds `first`..`last` (none if first > last) failed; the pipeline takes no more."""

    first: EntryId
    last: EntryId
    error: LedgerError


class UnderReplicated(NamedTuple):
    """These bookies lack confirmed entries that they are members for: repair the ledger."""

    bookies: tuple[BookieId, ...]


class PauseBusy(NamedTuple):
    """Call `send_again` after `BUSY_PAUSE_S`."""


AddEffect = SendAdd | Confirmed | ChangeEnsemble | Failed | UnderReplicated | PauseBusy
AddEffects = Sequence[AddEffect]

_NOTHING: Final[AddEffects] = ()


class Adds:
    """The add pipeline of one ledger handle. Owned and called by one shell only."""

    def __init__(
        self,
        ensemble: Sequence[BookieId],
        schedule: Schedule,
        *,
        lac: EntryId = NO_ENTRY,
        length: int = 0,
        frozen_lac: EntryId | None = None,
        delay_change: bool = False,
        quorum_timeout_s: float | None = None,
        busy_timeout_s: float = 0.0,
    ) -> None:
        """`lac`, `length`: where adding starts. `frozen_lac`: entries carry this LAC instead.

        The last three: rules CHANGE-DELAY, ADD-TIMEOUT and ADD-BUSY.
        """
        self.ensemble = tuple(ensemble)
        self.state = AddsState.OPEN
        self.lac = lac
        self.last_add_pushed = lac
        """Highest entry id taken."""
        self.length = length
        """Payload bytes of all entries pushed."""
        self.confirmed_length = length
        """Payload bytes up to and including LAC."""
        self.pending_bytes = 0
        """Payload bytes of adds that somebody has still to answer: what we hold in memory."""
        self.error: LedgerError | None = None
        """Why the pipeline failed."""
        self.holes = Holes()
        self._schedule = schedule
        self._frozen_lac = frozen_lac
        self._delay_change = delay_change
        self._quorum_timeout_s = quorum_timeout_s
        self._shed = ShedAdds(busy_timeout_s)
        self._pending: dict[int, PendingAdd] = {}
        """By entry id, in the order they came; after a failure the confirmed ones only."""
        self._failures: dict[int, BookieId] = {}
        """Failed members of the ensemble that no change has dealt with yet."""
        self._changing: dict[int, BookieId] = {}
        """Failed members that the running change replaces."""
        self._suspended: dict[int, float] = {}
        """Failed members nobody could replace: index -> when it is probed next."""
        self._unsent = 0
        """Mask of indices that get no adds now: under change or suspended."""

    def add(
        self,
        payload: Sequence[Buffer],
        size: int,
        now_s: float,
        length: int | None = None,
        entry_id: EntryId | None = None,
    ) -> AddEffects:
        """Take an entry: `entry_id`, or by default the one after the last.

        `size` is the payload's bytes. `length`, if given, is the ledger's length including this
        entry (recovery knows it from the entry). Raises the error that failed the pipeline, and
        DuplicateEntryId.
        """
        if self.error is not None:
            raise type(self.error)(str(self.error))
        entry_id = EntryId(self.last_add_pushed + 1) if entry_id is None else entry_id
        if entry_id <= self.last_add_pushed:
            self._check_free(entry_id)
        effects: list[AddEffect] = []
        if self._failures and self.state is AddsState.OPEN:
            effects.append(self._begin_change())
        self.last_add_pushed = max(self.last_add_pushed, entry_id)
        growth = size if length is None else length - self.length
        self.length += growth
        carried = self.lac if self._frozen_lac is None else self._frozen_lac
        entry = AddEntry(entry_id, carried, self.length, payload, size)
        indices: Sequence[int] = self._schedule.write_set(entry_id)
        awaited = self._schedule.write_mask(entry_id)
        missed = 0
        if self._unsent:
            missed = awaited & self._unsent & ~self._take_due_probes(awaited, now_s)
            awaited &= ~missed
            indices = [index for index in indices if awaited >> index & 1]
        self._pending[entry_id] = PendingAdd(entry, growth, now_s, awaited, missed)
        self.pending_bytes += size
        effects.append(SendAdd(entry, indices))
        return effects

    def on_stored(self, entry_id: EntryId, index: int, bookie: BookieId) -> AddEffects:
        """A bookie that was asked as member `index` stored an entry durably."""
        add = self._pending.get(entry_id)
        if add is None or self.ensemble[index] != bookie:
            return _NOTHING
        if self._shed.since_s:
            self._shed.on_stored(bookie)
        bit = 1 << index
        add.acked |= bit
        add.awaited &= ~bit
        if entry_id <= self.lac:
            self._forget_if_answered(entry_id, add)
        if self.state is AddsState.FAILED:
            return self._tell_holes_at_last()
        if self._suspended and index in self._suspended:
            return self._resume_sending(index)
        if entry_id == self.lac + 1 and self.state is AddsState.OPEN:
            return self._drain()
        return _NOTHING

    def on_failed(
        self, entry_id: EntryId, index: int, bookie: BookieId, error: LedgerError
    ) -> AddEffects:
        """A bookie that was asked as member `index` did not store an entry, or cannot say."""
        if self.ensemble[index] != bookie:
            return _NOTHING
        add = self._pending.get(entry_id)
        if add is not None:
            self._miss(entry_id, add, 1 << index)
        if self.state is AddsState.FAILED:
            return _NOTHING if add is None else self._tell_holes_at_last()
        if isinstance(error, (LedgerFenced, UnauthorizedAccess)):
            return self.fail(error)
        is_out = index in self._changing or index in self._suspended
        if not is_out and (not self._delay_change or isinstance(error, BookieReadOnly)):
            self._failures[index] = bookie
        elif not self._delay_change or add is None or self._can_reach_quorum(add):
            return _NOTHING
        else:
            # Also when this member is out already: a failure before was let pass because the
            # add could still reach its quorum with the answer that did not come.
            self._failures.update(self._members(add.missed & ~self._unsent))
        if self.state is AddsState.CHANGING or add is None or self._has_quorum(add):
            return _NOTHING
        return (self._begin_change(),)

    def on_busy(
        self, entry_id: EntryId, index: int, bookie: BookieId, error: TooManyRequests, now_s: float
    ) -> AddEffects:
        """A bookie that was asked as member `index` has no room for an entry (rule ADD-BUSY)."""
        if self.ensemble[index] != bookie:
            return _NOTHING
        if self._takes_none(index) or self._shed.is_over(bookie, now_s):
            return self.on_failed(entry_id, index, bookie, error)
        return (PauseBusy(),) if self._shed.add(entry_id, index, bookie) else _NOTHING

    def send_again(self) -> AddEffects:
        """The pause is over: send what was shed to who shed it, where both still matter."""
        effects: list[AddEffect] = []
        for entry_id, index, bookie in self._shed.take():
            add = self._pending.get(entry_id)
            if add is None or self.ensemble[index] != bookie:
                continue
            if self._takes_none(index):
                error = TooManyRequests(f"{bookie} has no room")
                effects += self.on_failed(entry_id, index, bookie, error)
            else:
                effects.append(SendAdd(add.entry, (index,)))
        return effects

    def on_ensemble(self, ensemble: Sequence[BookieId], now_s: float) -> AddEffects:
        """The change asked for by `ChangeEnsemble` is over; metadata names `ensemble`.

        Members of the change that are still there could not be replaced.
        """
        if self.state is not AddsState.CHANGING:
            return _NOTHING
        left = [i for i, bookie in self._changing.items() if ensemble[i] == bookie]
        has_changed = self.ensemble != tuple(ensemble)
        self._strike_replaced(ensemble)
        self._changing = {}
        self._suspended.update((index, now_s + PROBE_INTERVAL_S) for index in left)
        self._failures = {
            index: bookie
            for index, bookie in self._failures.items()
            if self.ensemble[index] == bookie and index not in self._suspended
        }
        if self._failures:
            return (self._begin_change(),)
        self._unsent = _mask(self._suspended)
        if not self._schedule.confirmable_without(self._unsent):
            names = ", ".join(self.ensemble[index] for index in self._suspended)
            return self.fail(NotEnoughBookies(f"no replacement for {names}"))
        self.state = AddsState.OPEN
        told = self._tell_holes() if has_changed else _NOTHING
        return [*self._send_missing(), *told, *self._drain()]

    def replace_suspended(self) -> AddEffects:
        """Try again to replace suspended members: other bookies may have become writable."""
        if not self._suspended or self.state is not AddsState.OPEN:
            return _NOTHING
        return (self._begin_change(),)

    def expire(self, now_s: float) -> AddEffects:
        """Fail if the next entry to confirm has waited too long (rule ADD-TIMEOUT)."""
        head = self._pending.get(self.lac + 1)
        if self._quorum_timeout_s is None or head is None:
            return _NOTHING
        if now_s - head.sent_s < self._quorum_timeout_s:
            return _NOTHING
        return self.fail(QuorumTimeout(f"entry {self.lac + 1} did not reach its quorum in time"))

    def fail(self, error: LedgerError) -> AddEffects:
        """Fail every unconfirmed add, for good. Their outcome is as unknown as the error says.

        Answers to confirmed adds are still wanted, to know whether everybody has them.
        """
        if self.state is AddsState.FAILED:
            return _NOTHING
        self.state = AddsState.FAILED
        self.error = error
        for entry_id in [entry_id for entry_id in self._pending if entry_id > self.lac]:
            self._pending.pop(entry_id).entry.is_pending = False
        self.pending_bytes = sum(add.size for add in self._pending.values())
        self._changing = {}
        self._unsent = _mask(self._suspended)
        failed = Failed(EntryId(self.lac + 1), self.last_add_pushed, error)
        return [failed, *self._tell_holes_at_last()]

    @property
    def suspended(self) -> list[BookieId]:
        """Members of the ensemble that get no adds because nobody could replace them."""
        return [self.ensemble[index] for index in self._suspended]

    @property
    def is_waiting(self) -> bool:
        """Whether the entry after LAC is under way; if not, nothing will be confirmed."""
        return self.lac + 1 in self._pending

    @property
    def is_settled(self) -> bool:
        """Whether the pipeline has failed, and every answer that matters is there."""
        return self.state is AddsState.FAILED and not self._pending

    def check(self) -> None:
        """Assert the invariants; tests and the simulator call this after every input."""
        assert self.lac <= self.last_add_pushed
        assert self.pending_bytes == sum(add.size for add in self._pending.values())
        assert self._unsent == _mask(self._suspended) | _mask(self._changing)
        assert bool(self._changing) == (self.state is AddsState.CHANGING)
        failed = _mask(self._failures) | self._unsent
        for entry_id, add in self._pending.items():
            mask = self._schedule.write_mask(EntryId(entry_id))
            assert add.acked | add.awaited | add.missed == mask
            assert add.acked ^ add.awaited ^ add.missed == mask, "disjoint"
            if entry_id <= self.lac:
                assert add.awaited, "an add that is confirmed and answered is forgotten"
            elif self.state is AddsState.OPEN:
                given_up = add.missed & ~failed
                assert not given_up or self._delay_change, "an add that a live member will lack"
                assert not given_up or self._can_reach_quorum(add), "an add nobody will store"
        if self.state is AddsState.OPEN and (head := self._pending.get(self.lac + 1)):
            assert not self._has_quorum(head), "an add that could be confirmed waits"

    def _check_free(self, entry_id: EntryId) -> None:
        if entry_id < 0:
            raise IncorrectParameter(f"{entry_id} is no entry id")
        if entry_id <= self.lac or entry_id in self._pending:
            raise DuplicateEntryId(f"entry {entry_id} was added before")

    def _has_quorum(self, add: PendingAdd) -> bool:
        return add.acked.bit_count() >= self._schedule.ack_quorum

    def _can_reach_quorum(self, add: PendingAdd) -> bool:
        return (add.acked | add.awaited).bit_count() >= self._schedule.ack_quorum

    def _takes_none(self, index: int) -> bool:
        return self.state is AddsState.FAILED or bool(self._unsent >> index & 1)

    def _members(self, mask: int) -> dict[int, BookieId]:
        return {i: bookie for i, bookie in enumerate(self.ensemble) if mask >> i & 1}

    def _drain(self) -> AddEffects:
        """Confirm the run of adds after LAC that have their quorum."""
        pending = self._pending
        first = entry_id = self.lac + 1
        while (add := pending.get(entry_id)) is not None and self._has_quorum(add):
            self.confirmed_length += add.growth
            if add.missed:
                self.holes.add(self._members(add.missed).values())
            self._forget_if_answered(entry_id, add)
            entry_id += 1
        if entry_id == first:
            return _NOTHING
        self.lac = EntryId(entry_id - 1)
        return (Confirmed(EntryId(first), self.lac),)

    def _miss(self, entry_id: int, add: PendingAdd, mask: int) -> None:
        """The members in `mask` will not store what they were sent."""
        missed = add.awaited & mask
        add.awaited &= ~missed
        add.missed |= missed
        if entry_id <= self.lac:
            self.holes.add(self._members(missed).values())
            self._forget_if_answered(entry_id, add)

    def _forget_if_answered(self, entry_id: int, add: PendingAdd) -> None:
        if not add.awaited:
            del self._pending[entry_id]
            add.entry.is_pending = False
            self.pending_bytes -= add.size

    def _tell_holes(self) -> AddEffects:
        bookies = self.holes.news()
        return (UnderReplicated(bookies),) if bookies else _NOTHING

    def _tell_holes_at_last(self) -> AddEffects:
        """Tell once nothing can change any more, also what was told before: whoever repaired the
        ledger while it was open could not know that this was all."""
        if self._pending or not self.holes.counts:
            return _NOTHING
        return (UnderReplicated(tuple(self.holes.counts)),)

    def _begin_change(self) -> ChangeEnsemble:
        suspended = {index: self.ensemble[index] for index in self._suspended}
        self._changing = {**suspended, **self._failures}
        self._failures = {}
        self._suspended = {}
        self._unsent = _mask(self._changing)
        self.state = AddsState.CHANGING
        return ChangeEnsemble(dict(self._changing))

    def _strike_replaced(self, ensemble: Sequence[BookieId]) -> None:
        """Adopt the new ensemble: what replaced members stored or were asked counts no more."""
        replaced = _mask(i for i, bookie in enumerate(ensemble) if bookie != self.ensemble[i])
        for entry_id, add in list(self._pending.items()):
            if entry_id <= self.lac:
                self._miss(entry_id, add, replaced)
            else:
                add.missed |= (add.acked | add.awaited) & replaced
                add.acked &= ~replaced
                add.awaited &= ~replaced
        self.ensemble = tuple(ensemble)
        self._shed.keep(self.ensemble)

    def _send_missing(self) -> list[AddEffect]:
        """Send every unconfirmed add to the members that neither stored it nor were asked."""
        effects: list[AddEffect] = []
        for entry_id, add in self._pending.items():
            missing = add.missed & ~self._unsent
            if entry_id > self.lac and missing:
                add.missed &= ~missing
                add.awaited |= missing
                indices = [i for i in range(len(self.ensemble)) if missing >> i & 1]
                effects.append(SendAdd(add.entry, indices))
        return effects

    def _resume_sending(self, index: int) -> AddEffects:
        """A suspended member stored a probe: it takes part again."""
        assert self.state is AddsState.OPEN, "a change takes over all suspended members"
        del self._suspended[index]
        self._unsent &= ~(1 << index)
        return [*self._send_missing(), *self._drain(), *self._tell_holes()]

    def _take_due_probes(self, mask: int, now_s: float) -> int:
        """Return the suspended indices in `mask` that are due for a probe, and re-arm them."""
        due = 0
        for index, probe_s in self._suspended.items():
            if mask >> index & 1 and now_s >= probe_s:
                self._suspended[index] = now_s + PROBE_INTERVAL_S
                due |= 1 << index
        return due


def _mask(indices: Iterable[int]) -> int:
    return sum(1 << index for index in indices)

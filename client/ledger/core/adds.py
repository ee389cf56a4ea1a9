"""The add pipeline of one ledger: from an entry's sending to its confirmation, in entry order.

This file is the only home of the rules of adding. The object is synchronous and does no I/O:
inputs are calls, effects are returned and carried out by the shell in order, before its next
input. The writer and the recovery of a ledger both use it.

    state      input                          becomes
    OPEN       failure of an unconfirmed add  CHANGING  + ChangeEnsemble
    OPEN       add after a late failure       CHANGING  + ChangeEnsemble
    CHANGING   ensemble settled               OPEN      + re-sends, then Confirmed
    CHANGING   ensemble settled, more failed  CHANGING  + ChangeEnsemble
    any        fenced, unauthorized, change failed, fail()   FAILED + Failed

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

- CHANGE-SUSPEND when no replacement can be found but every write set still reaches Qa without the
              failed bookies, they are suspended instead of failing the ledger: nothing is sent to
              them but a probe every `PROBE_INTERVAL_S`; the first stored probe brings them back.
              What is confirmed meanwhile has Qa copies, as promised, but not Qw. (Beyond Java.)

Sources: BookKeeper protocol text ("Writing to ledgers"), `PendingAddOp`, `LedgerHandle`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from client.errors import LedgerError, LedgerFenced, NotEnoughBookies, UnauthorizedAccess
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.schedule import Schedule
from client.wire.bookkeeper.messages import AddRequest, Buffer

PROBE_INTERVAL_S: Final = 1.0
"""How often one add is also sent to a suspended bookie, to see whether it is back."""

Seal = Callable[[EntryId, EntryId, int, Sequence[Buffer]], AddRequest]
"""(entry id, LAC, ledger length, payload) -> the request, made once and sent to every bookie."""


class AddsState(enum.Enum):
    """States of the pipeline; see the table above."""

    OPEN = "open"
    CHANGING = "changing"
    FAILED = "failed"


class SendAdd(NamedTuple):
    """Send an entry of `size` payload bytes to members `indices` of the current ensemble."""

    request: AddRequest
    size: int
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


AddEffect = SendAdd | Confirmed | ChangeEnsemble | Failed
AddEffects = Sequence[AddEffect]

_NOTHING: Final[AddEffects] = ()


class _Pending:
    """An add that is unconfirmed, or confirmed and not yet answered by all its bookies."""

    __slots__ = ("acked", "awaited", "length", "request", "size")

    def __init__(self, request: AddRequest, size: int, length: int, awaited: int) -> None:
        self.request = request
        self.size = size
        self.length = length
        self.acked = 0
        """Mask of indices whose current bookie stored it."""
        self.awaited = awaited
        """Mask of indices it was sent to that have not answered."""


class Adds:
    """The add pipeline of one ledger handle. Owned and called by one shell only."""

    def __init__(
        self,
        ensemble: Sequence[BookieId],
        schedule: Schedule,
        seal: Seal,
        *,
        lac: EntryId = NO_ENTRY,
        length: int = 0,
        frozen_lac: EntryId | None = None,
    ) -> None:
        """`lac`, `length`: where adding starts. `frozen_lac`: entries carry this LAC instead."""
        self.ensemble = tuple(ensemble)
        self.state = AddsState.OPEN
        self.lac = lac
        self.last_add_pushed = lac
        self.length = length
        """Payload bytes of all entries pushed."""
        self.confirmed_length = length
        """Payload bytes up to and including LAC."""
        self.pending_bytes = 0
        """Payload bytes of adds that somebody has still to answer: what we hold in memory."""
        self.error: LedgerError | None = None
        """Why the pipeline failed."""
        self._schedule = schedule
        self._seal = seal
        self._frozen_lac = frozen_lac
        self._pending: dict[int, _Pending] = {}
        """By entry id, ascending."""
        self._failures: dict[int, BookieId] = {}
        """Failed members of the ensemble that no change has dealt with yet."""
        self._changing: dict[int, BookieId] = {}
        """Failed members that the running change replaces."""
        self._suspended: dict[int, float] = {}
        """Failed members nobody could replace: index -> when it is probed next."""
        self._unsent = 0
        """Mask of indices that get no adds now: under change or suspended."""

    def add(
        self, payload: Sequence[Buffer], size: int, now_s: float, length: int | None = None
    ) -> AddEffects:
        """Take the next entry; its id is `last_add_pushed` afterwards.

        `size` is the payload's bytes. `length`, if given, is the ledger's length including this
        entry (recovery knows it from the entry). Raises the error that failed the pipeline.
        """
        if self.error is not None:
            raise type(self.error)(str(self.error))
        effects: list[AddEffect] = []
        if self._failures and self.state is AddsState.OPEN:
            effects.append(self._begin_change())
        entry_id = EntryId(self.last_add_pushed + 1)
        self.last_add_pushed = entry_id
        self.length = self.length + size if length is None else length
        carried = self.lac if self._frozen_lac is None else self._frozen_lac
        request = self._seal(entry_id, carried, self.length, payload)
        indices: Sequence[int] = self._schedule.write_set(entry_id)
        awaited = self._schedule.write_mask(entry_id)
        if self._unsent:
            awaited &= ~self._unsent | self._take_due_probes(awaited, now_s)
            indices = [index for index in indices if awaited >> index & 1]
        self._pending[entry_id] = _Pending(request, size, self.length, awaited)
        self.pending_bytes += size
        effects.append(SendAdd(request, size, indices))
        return effects

    def on_stored(self, entry_id: EntryId, index: int, bookie: BookieId) -> AddEffects:
        """A bookie that was asked as member `index` stored an entry durably."""
        add = self._pending.get(entry_id)
        if add is None or self.ensemble[index] != bookie:
            return _NOTHING
        bit = 1 << index
        add.acked |= bit
        add.awaited &= ~bit
        if entry_id <= self.lac:
            self._forget_if_answered(entry_id, add)
        if self._suspended and index in self._suspended:
            return self._resume_sending(index)
        if entry_id == self.lac + 1 and self.state is AddsState.OPEN:
            return self._drain()
        return _NOTHING

    def on_failed(
        self, entry_id: EntryId, index: int, bookie: BookieId, error: LedgerError
    ) -> AddEffects:
        """A bookie that was asked as member `index` did not store an entry, or cannot say."""
        if self.state is AddsState.FAILED or self.ensemble[index] != bookie:
            return _NOTHING
        if isinstance(error, (LedgerFenced, UnauthorizedAccess)):
            return self.fail(error)
        add = self._pending.get(entry_id)
        if add is not None:
            add.awaited &= ~(1 << index)
            if entry_id <= self.lac:
                self._forget_if_answered(entry_id, add)
        if index in self._changing or index in self._suspended:
            return _NOTHING
        self._failures[index] = bookie
        if self.state is AddsState.CHANGING or add is None or self._has_quorum(add):
            return _NOTHING
        return (self._begin_change(),)

    def on_ensemble(self, ensemble: Sequence[BookieId], now_s: float) -> AddEffects:
        """The change asked for by `ChangeEnsemble` is over; metadata names `ensemble`.

        Members of the change that are still there could not be replaced.
        """
        if self.state is not AddsState.CHANGING:
            return _NOTHING
        left = [i for i, bookie in self._changing.items() if ensemble[i] == bookie]
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
        return [*self._send_missing(), *self._drain()]

    def replace_suspended(self) -> AddEffects:
        """Try again to replace suspended members: other bookies may have become writable."""
        if not self._suspended or self.state is not AddsState.OPEN:
            return _NOTHING
        return (self._begin_change(),)

    def fail(self, error: LedgerError) -> AddEffects:
        """Fail every unconfirmed add, for good. Their outcome is as unknown as the error says."""
        if self.state is AddsState.FAILED:
            return _NOTHING
        self.state = AddsState.FAILED
        self.error = error
        self._pending = {}
        self.pending_bytes = 0
        self._changing = {}
        self._unsent = _mask(self._suspended)
        return (Failed(EntryId(self.lac + 1), self.last_add_pushed, error),)

    @property
    def suspended(self) -> list[BookieId]:
        """Members of the ensemble that get no adds because nobody could replace them."""
        return [self.ensemble[index] for index in self._suspended]

    def check(self) -> None:
        """Assert the invariants; tests and the simulator call this after every input."""
        assert self.lac <= self.last_add_pushed
        assert self.pending_bytes == sum(add.size for add in self._pending.values())
        assert list(self._pending) == sorted(self._pending)
        assert self._unsent == _mask(self._suspended) | _mask(self._changing)
        assert bool(self._changing) == (self.state is AddsState.CHANGING)
        failed = _mask(self._failures) | self._unsent
        for entry_id, add in self._pending.items():
            mask = self._schedule.write_mask(EntryId(entry_id))
            assert not (add.acked | add.awaited) & ~mask
            if entry_id <= self.lac:
                assert add.awaited, "an add that is confirmed and answered is forgotten"
            elif self.state is AddsState.OPEN:
                assert not mask & ~(add.acked | add.awaited | failed), "an add nobody will store"
        if self.state is AddsState.OPEN and (head := self._pending.get(self.lac + 1)):
            assert not self._has_quorum(head), "an add that could be confirmed waits"

    def _has_quorum(self, add: _Pending) -> bool:
        return add.acked.bit_count() >= self._schedule.ack_quorum

    def _drain(self) -> AddEffects:
        """Confirm the run of adds after LAC that have their quorum."""
        pending = self._pending
        first = entry_id = self.lac + 1
        while (add := pending.get(entry_id)) is not None and self._has_quorum(add):
            self.confirmed_length = add.length
            self._forget_if_answered(entry_id, add)
            entry_id += 1
        if entry_id == first:
            return _NOTHING
        self.lac = EntryId(entry_id - 1)
        return (Confirmed(EntryId(first), self.lac),)

    def _forget_if_answered(self, entry_id: int, add: _Pending) -> None:
        if not add.awaited:
            del self._pending[entry_id]
            self.pending_bytes -= add.size

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
        replaced = [i for i, bookie in enumerate(ensemble) if bookie != self.ensemble[i]]
        self.ensemble = tuple(ensemble)
        kept = ~_mask(replaced)
        for entry_id, add in list(self._pending.items()):
            add.awaited &= kept
            if entry_id > self.lac:
                add.acked &= kept
            else:
                self._forget_if_answered(entry_id, add)

    def _send_missing(self) -> list[AddEffect]:
        """Send every unconfirmed add to the members that neither stored it nor were asked."""
        effects: list[AddEffect] = []
        for entry_id, add in self._pending.items():
            wanted = self._schedule.write_mask(EntryId(entry_id)) & ~self._unsent
            missing = wanted & ~(add.acked | add.awaited)
            if entry_id > self.lac and missing:
                add.awaited |= missing
                indices = [i for i in range(len(self.ensemble)) if missing >> i & 1]
                effects.append(SendAdd(add.request, add.size, indices))
        return effects

    def _resume_sending(self, index: int) -> AddEffects:
        """A suspended member stored a probe: it takes part again."""
        assert self.state is AddsState.OPEN, "a change takes over all suspended members"
        del self._suspended[index]
        self._unsent &= ~(1 << index)
        return [*self._send_missing(), *self._drain()]

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

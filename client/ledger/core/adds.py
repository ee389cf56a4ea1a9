"""The add pipeline of one ledger: from an entry's sending to its confirmation, in entry order.

Covers the rules of adding. The object is synchronous and does no I/O: inputs are calls, effects
are returned and carried out by the shell in order, before its next input. The writer and the
recovery of a ledger both use it.

    state      input                          becomes
    OPEN       failure of an unconfirmed add  CHANGING  + ChangeEnsemble
    OPEN       add after a late failure       CHANGING  + ChangeEnsemble
    CHANGING   ensemble settled               OPEN      + re-sends, then Confirmed
    CHANGING   ensemble settled, more failed  CHANGING  + ChangeEnsemble
    OPEN       look() finds a slow member     CHANGING  + ChangeEnsemble, planned
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
              one that does nothing else for `busy_timeout_s` has failed (`ShedAdds`).
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
- CHANGE-SLOW a member that stays behind the others is replaced by a planned change, if nobody has
              failed; without a replacement it stays (`SlowMembers`). (Beyond Java.)
- HOLES       a member that will not store a confirmed entry of its own is remembered, whatever the
              reason, and told of as `UnderReplicated`: when it takes part again, when others took
              its place, and once at the end. (Beyond Java, which finds some of them by chance.)

Sources: BookKeeper protocol text ("Writing to ledgers"), `PendingAddOp`, `LedgerHandle`.

A bookie that sheds an add is busy, not failed (ADD-BUSY): the add is sent to it
again after a pause. Only a bookie that has stored nothing since it began to shed, for a whole
timeout, has failed. Apache BookKeeper's `PendingAddOp` takes the first such answer for a failure.

Holes: a confirmed entry is on Qa bookies, as its owner was promised, but it belongs on all Qw of
its write set: whoever failed it, was suspended or was fenced before it arrived has a hole there
that no later add fills. The account goes to auto recovery as a mark on the ledger
(`under_replication.py`).

Slow members (CHANGE-SLOW): a bookie that makes some progress, however little, never fails by
LINK-CLOCK, and a healthy third copy of an entry waits for it for ever: its writer holds the bytes,
until it has as many as it may and goes at the pace of the slowest.

    behind  a member that has not answered the oldest add which is not answered by all, although
            that add was confirmed, and so stored by an ack quorum of others, `lag_s` ago
    slow    a member that was behind each time one looked, for `patience_s`

Being behind is measured from the confirmation, so that what slows all bookies down, the network,
this process or their common disks, makes none of them slow: the adds are confirmed late then. The
account costs nothing per add: it looks at one of them now and then. A planned change replaces the
slow member, one at a time; if there is no replacement it stays, and has as much time again. Java
has no such rule.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from client.fast_tuple import new_tuple
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.ledger_metadata import Schedule
from client.ledger.core.members import Members, mask_of
from client.wire.bookkeeper.messages import AddRequest, Buffer


class AddEntry:
    """What bookies are to store as one entry. The shell seals it when it is sent first."""

    __slots__ = (
        "entry_id",
        "is_pending",
        "lac",
        "length",
        "payload",
        "request",
        "size",
        "unanswered",
    )

    def __init__(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer], size: int
    ) -> None:
        self.entry_id = entry_id
        self.lac = lac
        """The last add confirmed that it carries."""
        self.length = length
        """Of the ledger, with this entry."""
        self.payload = payload
        self.size = size
        """Bytes of the payload."""
        self.request: AddRequest | None = None
        """Sent to every bookie, however often."""
        self.is_pending = True
        """Whether the pipeline may still send it."""
        self.unanswered = 0
        """Copies sent that are neither answered nor given up. The shell's business."""

    def on_sealed(self, request: AddRequest) -> None:
        """The shell made the request."""
        self.request = request
        self.payload = ()


class PendingAdd:
    """An add that is unconfirmed, or confirmed and not yet answered by all its bookies."""

    __slots__ = ("acked", "awaited", "entry", "growth", "missed", "sent_s", "size")

    def __init__(
        self, entry: AddEntry, growth: int, sent_s: float, awaited: int, missed: int
    ) -> None:
        self.entry = entry
        self.size = entry.size
        self.growth = growth
        """By how much it makes the ledger longer."""
        self.sent_s = sent_s
        # The write set is the union of the next three masks, which are disjoint.
        self.acked = 0
        """Indices whose current bookie stored it."""
        self.awaited = awaited
        """Indices it was sent to that have not answered."""
        self.missed = missed
        """Indices that failed it, or never got it."""


BUSY_PAUSE_S: Final = 0.05
"""How long a bookie that sheds adds is left alone with those."""


class ShedAdds:
    """The adds of one pipeline that wait to be sent again."""

    __slots__ = ("_adds", "_timeout_s", "since_s")

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: how long a bookie may shed adds and store none; 0: it may not."""
        self._timeout_s = timeout_s
        self._adds: list[tuple[EntryId, int, BookieId]] = []
        self.since_s: dict[BookieId, float] = {}
        """When bookies that have stored nothing since began to shed."""

    def is_over(self, bookie: BookieId, now_s: float) -> bool:
        """Whether a bookie that sheds an add now has been doing so for too long."""
        return now_s - self.since_s.setdefault(bookie, now_s) >= self._timeout_s

    def add(self, entry_id: EntryId, index: int, bookie: BookieId) -> bool:
        """Let an add wait; return whether it is the first, so that the pause begins."""
        self._adds.append((entry_id, index, bookie))
        return len(self._adds) == 1

    def take(self) -> list[tuple[EntryId, int, BookieId]]:
        """The pause is over: return entry, member index and bookie of what waited."""
        adds, self._adds = self._adds, []
        return adds

    def on_stored(self, bookie: BookieId) -> None:
        """The bookie stored an add: it has room, and was busy."""
        self.since_s.pop(bookie, None)

    def keep(self, bookies: tuple[BookieId, ...]) -> None:
        """Forget bookies that are not in the ensemble any more."""
        self.since_s = {name: at_s for name, at_s in self.since_s.items() if name in bookies}


class Holes:
    """The account of one ledger handle."""

    __slots__ = ("_has_news", "counts")

    def __init__(self) -> None:
        self.counts: dict[BookieId, int] = {}
        """How many confirmed entries each bookie lacks, as far as known."""
        self._has_news = False

    def add(self, bookies: Iterable[BookieId]) -> None:
        """Each of `bookies` lacks one more entry."""
        for bookie in bookies:
            self.counts[bookie] = self.counts.get(bookie, 0) + 1
            self._has_news = True

    def news(self) -> tuple[BookieId, ...]:
        """Return everybody who lacks entries if there are more holes than last time, else ()."""
        if not self._has_news:
            return ()
        self._has_news = False
        return tuple(self.counts)


class SlowLimits(NamedTuple):
    """When a member is slow. Times in seconds."""

    lag_s: float
    patience_s: float
    """0: nobody is."""


class SlowMembers:
    """Who is behind in one ensemble. `look` at least twice per `lag_s`."""

    __slots__ = ("_behind_since_s", "_confirmed", "_limits")

    def __init__(self, limits: SlowLimits) -> None:
        self._limits = limits
        self._behind_since_s: dict[BookieId, float] = {}
        self._confirmed: list[tuple[float, EntryId]] = []
        """What was the LAC when one looked, a few times per `lag_s`: the newest that is `lag_s`
        old, and all after it."""

    def look(
        self, oldest: EntryId, lac: EntryId, awaited: tuple[BookieId, ...], now_s: float
    ) -> BookieId | None:
        """Return the member that is slow now, if one is.

        `oldest`: the oldest add that is not answered by all, `awaited`: who has still to answer.
        """
        confirmed = self._confirmed
        confirmed.append((now_s, lac))
        while len(confirmed) > 1 and now_s - confirmed[1][0] >= self._limits.lag_s:
            del confirmed[0]
        then_s, lac_then = confirmed[0]
        is_behind = now_s - then_s >= self._limits.lag_s and oldest <= lac_then
        since_s = self._behind_since_s
        self._behind_since_s = (
            {bookie: since_s.get(bookie, now_s) for bookie in awaited} if is_behind else {}
        )
        for bookie, began_s in self._behind_since_s.items():
            if now_s - began_s >= self._limits.patience_s:
                self._behind_since_s[bookie] = now_s
                return bookie
        return None

    def forget(self) -> None:
        """Everything is answered, or the ensemble changes: what was seen says nothing any more."""
        self._behind_since_s.clear()
        self._confirmed.clear()


class AddsState(enum.Enum):
    """States of the pipeline; see the table above."""

    OPEN = "open"
    CHANGING = "changing"
    FAILED = "failed"


class AddRules(NamedTuple):
    """What one may choose. Times in seconds."""

    delay_change: bool = False
    """Rule CHANGE-DELAY."""
    quorum_timeout_s: float | None = None
    """Rule ADD-TIMEOUT."""
    busy_timeout_s: float = 0.0
    """Rule ADD-BUSY; 0: who sheds an add has failed."""
    slow: SlowLimits = SlowLimits(lag_s=0.0, patience_s=0.0)
    """Rule CHANGE-SLOW. Off with `delay_change`, which keeps even those who fail."""

    @property
    def replaces_slow(self) -> bool:
        """Whether rule CHANGE-SLOW is in force."""
        return self.slow.patience_s > 0 and not self.delay_change


RECOVERYS: Final = AddRules()
"""The rules of a recovery's adds: what the writer had chosen is over."""


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
    is_planned: bool = False
    """They have not failed (rule CHANGE-SLOW): rather no change than one that does harm."""


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
        rules: AddRules = RECOVERYS,
    ) -> None:
        """`lac`, `length`: where adding starts. `frozen_lac`: entries carry this LAC instead."""
        self.members = Members(ensemble)
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
        self._rules = rules
        self._shed = ShedAdds(rules.busy_timeout_s)
        self._slow = SlowMembers(rules.slow)
        self._pending: dict[int, PendingAdd] = {}
        """By entry id, in the order they came; after a failure the confirmed ones only."""

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
        members = self.members
        if members.failed and self.state is AddsState.OPEN:
            effects.append(self._begin_change())
        self.last_add_pushed = max(self.last_add_pushed, entry_id)
        growth = size if length is None else length - self.length
        self.length += growth
        carried = self.lac if self._frozen_lac is None else self._frozen_lac
        entry = AddEntry(entry_id, carried, self.length, payload, size)
        indices: Sequence[int] = self._schedule.write_set(entry_id)
        awaited = self._schedule.write_mask(entry_id)
        missed = 0
        if members.unsent:
            missed = awaited & members.unsent & ~members.take_due_probes(awaited, now_s)
            awaited &= ~missed
            indices = [index for index in indices if awaited >> index & 1]
        self._pending[entry_id] = PendingAdd(entry, growth, now_s, awaited, missed)
        self.pending_bytes += size
        effects.append(new_tuple(SendAdd, (entry, indices)))
        return effects

    def on_stored(self, entry_id: EntryId, index: int, bookie: BookieId) -> AddEffects:
        """A bookie that was asked as member `index` stored an entry durably."""
        add = self._pending.get(entry_id)
        members = self.members
        if add is None or members.ensemble[index] != bookie:
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
        if members.unsent and members.resume(index):
            return self._resume_sending()
        if entry_id == self.lac + 1 and self.state is AddsState.OPEN and self._has_quorum(add):
            return self._drain()
        return _NOTHING

    def on_failed(
        self, entry_id: EntryId, index: int, bookie: BookieId, error: LedgerError
    ) -> AddEffects:
        """A bookie that was asked as member `index` did not store an entry, or cannot say."""
        members = self.members
        if members.ensemble[index] != bookie:
            return _NOTHING
        add = self._pending.get(entry_id)
        if add is not None:
            self._miss(entry_id, add, 1 << index)
        if self.state is AddsState.FAILED:
            return _NOTHING if add is None else self._tell_holes_at_last()
        if isinstance(error, (LedgerFenced, UnauthorizedAccess)):
            return self.fail(error)
        is_delayed = self._rules.delay_change
        if not members.is_out(index) and (not is_delayed or isinstance(error, BookieReadOnly)):
            members.failed[index] = bookie
        elif not is_delayed or add is None or self._can_reach_quorum(add):
            return _NOTHING
        else:
            # Also when this member is out already: a failure before was let pass because the
            # add could still reach its quorum with the answer that did not come.
            members.failed.update(members.named(add.missed & ~members.unsent))
        if self.state is AddsState.CHANGING or add is None or self._has_quorum(add):
            return _NOTHING
        return (self._begin_change(),)

    def on_busy(
        self, entry_id: EntryId, index: int, bookie: BookieId, error: TooManyRequests, now_s: float
    ) -> AddEffects:
        """A bookie that was asked as member `index` has no room for an entry (rule ADD-BUSY)."""
        if self.members.ensemble[index] != bookie:
            return _NOTHING
        if self._takes_none(index) or self._shed.is_over(bookie, now_s):
            return self.on_failed(entry_id, index, bookie, error)
        return (PauseBusy(),) if self._shed.add(entry_id, index, bookie) else _NOTHING

    def send_again(self) -> AddEffects:
        """The pause is over: send what was shed to who shed it, where both still matter."""
        effects: list[AddEffect] = []
        for entry_id, index, bookie in self._shed.take():
            add = self._pending.get(entry_id)
            if add is None or self.members.ensemble[index] != bookie:
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
        members = self.members
        replaced = members.replaced_by(ensemble)
        self._strike_replaced(replaced)
        members.end_change(ensemble, now_s)
        self._shed.keep(members.ensemble)
        if members.failed:
            return (self._begin_change(),)
        if not self._schedule.confirmable_without(members.unsent):
            names = ", ".join(members.suspended)
            return self.fail(NotEnoughBookies(f"no replacement for {names}"))
        self.state = AddsState.OPEN
        told = self._tell_holes() if replaced else _NOTHING
        return [*self._send_missing(), *told, *self._drain()]

    def replace_suspended(self) -> AddEffects:
        """Try again to replace suspended members: other bookies may have become writable."""
        if not self.members.probe_at_s or self.state is not AddsState.OPEN:
            return _NOTHING
        return (self._begin_change(),)

    def look(self, now_s: float, may_replace: Callable[[BookieId], bool]) -> AddEffects:
        """Look for what takes too long (rules ADD-TIMEOUT and CHANGE-SLOW), every now and then.

        `may_replace`: whether a slow bookie may go, as far as others are concerned.
        """
        head, timeout_s = self._pending.get(self.lac + 1), self._rules.quorum_timeout_s
        if timeout_s is not None and head is not None and now_s - head.sent_s >= timeout_s:
            error = QuorumTimeout(f"entry {self.lac + 1} did not reach its quorum in time")
            return self.fail(error)
        if not self._rules.replaces_slow:
            return _NOTHING
        if self.state is not AddsState.OPEN or not self._pending:
            self._slow.forget()
            return _NOTHING
        oldest = next(iter(self._pending))
        awaited = tuple(self.members.named(self._pending[oldest].awaited).values())
        slow = self._slow.look(EntryId(oldest), self.lac, awaited, now_s)
        members = self.members
        if slow is None or members.failed or members.unsent or not may_replace(slow):
            return _NOTHING
        self.state = AddsState.CHANGING
        index = members.ensemble.index(slow)
        return (ChangeEnsemble(members.begin_planned_change(index), is_planned=True),)

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
        self.members.give_up_change()
        failed = Failed(EntryId(self.lac + 1), self.last_add_pushed, error)
        return [failed, *self._tell_holes_at_last()]

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
        self.members.check()
        assert bool(self.members.changing) == (self.state is AddsState.CHANGING)
        failed = mask_of(self.members.failed) | self.members.unsent
        for entry_id, add in self._pending.items():
            mask = self._schedule.write_mask(EntryId(entry_id))
            assert add.acked | add.awaited | add.missed == mask
            assert add.acked ^ add.awaited ^ add.missed == mask, "disjoint"
            if entry_id <= self.lac:
                assert add.awaited, "an add that is confirmed and answered is forgotten"
            elif self.state is AddsState.OPEN:
                given_up = add.missed & ~failed
                is_delayed = self._rules.delay_change
                assert not given_up or is_delayed, "an add that a live member will lack"
                assert not given_up or self._can_reach_quorum(add), "an add nobody will store"
        if self.state is AddsState.OPEN and (head := self._pending.get(self.lac + 1)):
            assert not self._has_quorum(head), "an add that could be confirmed waits"

    def _check_free(self, entry_id: EntryId) -> None:
        if entry_id < 0:
            raise IncorrectParameter(f"{entry_id} is not an entry id")
        if entry_id <= self.lac or entry_id in self._pending:
            raise DuplicateEntryId(f"entry {entry_id} was added before")

    def _has_quorum(self, add: PendingAdd) -> bool:
        return add.acked.bit_count() >= self._schedule.ack_quorum

    def _can_reach_quorum(self, add: PendingAdd) -> bool:
        return (add.acked | add.awaited).bit_count() >= self._schedule.ack_quorum

    def _takes_none(self, index: int) -> bool:
        return self.state is AddsState.FAILED or self.members.is_out(index)

    def _drain(self) -> AddEffects:
        """Confirm the run of adds after LAC that have their quorum."""
        pending = self._pending
        first = entry_id = self.lac + 1
        while (add := pending.get(entry_id)) is not None and self._has_quorum(add):
            self.confirmed_length += add.growth
            if add.missed:
                self.holes.add(self.members.named(add.missed).values())
            self._forget_if_answered(entry_id, add)
            entry_id += 1
        if entry_id == first:
            return _NOTHING
        self.lac = EntryId(entry_id - 1)
        return (new_tuple(Confirmed, (first, self.lac)),)

    def _miss(self, entry_id: int, add: PendingAdd, mask: int) -> None:
        """The members in `mask` will not store what they were sent."""
        missed = add.awaited & mask
        add.awaited &= ~missed
        add.missed |= missed
        if entry_id <= self.lac:
            self.holes.add(self.members.named(missed).values())
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
        self.state = AddsState.CHANGING
        return ChangeEnsemble(self.members.begin_change())

    def _strike_replaced(self, replaced: int) -> None:
        """What the members in a mask stored, or were asked to, counts no more."""
        for entry_id, add in list(self._pending.items()):
            if entry_id <= self.lac:
                self._miss(entry_id, add, replaced)
            else:
                add.missed |= (add.acked | add.awaited) & replaced
                add.acked &= ~replaced
                add.awaited &= ~replaced

    def _send_missing(self) -> list[AddEffect]:
        """Send every unconfirmed add to the members that neither stored it nor were asked."""
        effects: list[AddEffect] = []
        for entry_id, add in self._pending.items():
            missing = add.missed & ~self.members.unsent
            if entry_id > self.lac and missing:
                add.missed &= ~missing
                add.awaited |= missing
                effects.append(SendAdd(add.entry, tuple(self.members.named(missing))))
        return effects

    def _resume_sending(self) -> AddEffects:
        """A suspended member stored a probe: it takes part again."""
        assert self.state is AddsState.OPEN, "a change takes over all suspended members"
        return [*self._send_missing(), *self._drain(), *self._tell_holes()]

"""What a share group has of one partition (KIP-932): which records are lent, settled, free again.

    AVAILABLE ──acquire──▶ ACQUIRED ──accept──────────────────────▶ ACKNOWLEDGED
     ▲   ▲                    │ gap; and, without dead letters, what
     │  time                  │ is said of DYING ─────────────────▶ ARCHIVED
     │   │                    │                                        ▲
     │ DELAYED                │                                  dead letter durable
     │   ▲                    │ reject; released or timed out          │
     │   │                    │ for the last time ─▶ DYING ─durable─▶ ARCHIVING
     └───┴──durable── RELEASED ◀── release, lock passed, holder gone

The window runs from `start`, the first record that may not be settled, to `end`, the first that was
never acquired; it is a list of runs without gaps. What leaves it at the front is settled for good.

    FREE-ONLY     Only what is AVAILABLE is acquired: a record has one holder.
    OWN-ONLY      Only who holds a record settles, releases or renews it, until its lock passes.
    ALL-OR-NONE   The ranges of a request take effect together, or none of them does.
    ANSWER-LATE   What changes is an update for the log. Whoever is answered is so when that is
                  durable (`leading/partition_shares.py`).
    RELEASE-LATE  A record is acquired again when its release is durable, so that a takeover cannot
                  take back more than one delivery.
    LIMIT-ALWAYS  What was delivered as often as allowed and comes back is ARCHIVED, however it
                  comes back.
    START-WAITS   `start` passes settled records only, and never falls; who wants it elsewhere
                  begins a new epoch.
    BOUNDED       The window has at most so many records (`ShareTerms.window_max`).
    ARCHIVING-FIRST  A dead letter is written when ARCHIVING is durable: what has one is not lent
                  again.
    LETTER-FIRST  A record is ARCHIVED when its dead letter is durable; until then `start` does not
                  pass it, not even if the log begins behind it by now.
    ONE-OF-KEY    With order by key, a record is lent when nothing of its key is before it
                  (`key_order.py`).
    NOT-BEFORE    What is released to wait is lent when its time has come, whoever leads by then.
    LAST-ALONE    A record's last delivery is the only one of its answer: if it is what breaks its
                  reader, it takes no others with it.

A leader keeps this in memory and the takeover folds it from the log: updates, and the snapshot
before them (`share_updates.py`). Who holds what, and until when, is in memory only.

Source: Kafka's SharePartition; KIP-932, KIP-1222 (renewal), KIP-1206 (acquire modes).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from broker.errors import InvalidRecordState, InvalidRequest
from broker.partition.core.shares.key_order import NO_KEYS, KeyOrder
from broker.partition.core.shares.share_updates import (
    COUNT_MAX,
    SETTLED,
    RecordState,
    ShareUpdate,
    StoredRange,
    Wait,
)
from client.ids import Offset

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgements."""

_FIRST: Final = attrgetter("first")
_NO_LOCK: Final = 0.0
_DOUBLINGS_MAX: Final = 30
_TO_BE_LENT: Final = (RecordState.AVAILABLE, RecordState.DELAYED)


class ShareTerms(NamedTuple):
    """A group's settings, as far as they are about its records."""

    lock_s: float = 30.0
    deliveries_max: int = 5
    window_max: int = 2_000
    has_dead_letters: bool = False
    """Whether what is rejected, or comes back for the last time, gets a dead letter."""
    is_ordered: bool = False
    """Whether records of one key are lent one after the other."""
    retry_ms: int = 0
    """How long a record waits that was released, or whose lock has passed, for the first time;
    each further time twice as long."""
    retry_max_ms: int = 0


class Extent(NamedTuple):
    """The offsets of a batch that was read."""

    first: Offset
    last: Offset
    is_wanted: bool = True
    """Not so: markers, and what a transaction wrote that was aborted."""


class Acquired(NamedTuple):
    """Records that a member holds now."""

    first: Offset
    last: Offset
    deliveries: int


class Acknowledgement(NamedTuple):
    """What becomes of some records: one type for all, or one for each."""

    first: Offset
    last: Offset
    types: Sequence[int]


class ShareCounts(NamedTuple):
    """The records of a window by what can become of them."""

    available: int
    """And what will be, soon or later."""
    acquired: int
    settled: int
    archiving: int = 0


class _Run:
    """Adjacent records of which the same is known."""

    __slots__ = ("deliveries", "first", "free_at_ms", "holder", "last", "lock_ends_s", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        deliveries: int = 0,
        holder: str = "",
        lock_ends_s: float = _NO_LOCK,
        free_at_ms: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        """Negative: of a record that is archived because a client has rejected it."""
        self.holder = holder
        self.lock_ends_s = lock_ends_s
        self.free_at_ms = free_at_ms

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def is_like(self, other: _Run) -> bool:
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.holder == other.holder
            and self.lock_ends_s == other.lock_ends_s
            and self.free_at_ms == other.free_at_ms
        )

    def become(self, state: RecordState) -> None:
        """Nobody holds it any more."""
        self.state = state
        self.holder = ""
        self.lock_ends_s = _NO_LOCK
        self.free_at_ms = 0
        if state in SETTLED:
            self.deliveries = 0


class SharePartition:
    """The window of one group. Offsets are of the partition's log."""

    __slots__ = ("_order", "_runs", "end", "epoch", "group_id", "incarnation", "start")

    def __init__(self, group_id: str, incarnation: UUID, start: Offset, epoch: int = 0) -> None:
        """Begin with nothing acquired; `incarnation` tells the group from others of its name,
        `epoch` this beginning from earlier ones."""
        self.group_id = group_id
        self.incarnation = incarnation
        self.epoch = epoch
        self.start = start
        self.end = start
        self._runs: list[_Run] = []
        self._order: KeyOrder | None = None

    # --- the log ------------------------------------------------------------------------

    def apply(self, update: ShareUpdate) -> None:
        """Take over a durable update: how a takeover gets at what its predecessor had."""
        for stored in update.ranges:
            first, last = max(stored.first, self.start), stored.last
            if first > last:
                continue
            self._extend(first - 1, RecordState.AVAILABLE)
            self._extend(last, stored.state, stored.deliveries)
            for run in self._cut(first, last):
                run.become(stored.state)
                run.deliveries = stored.deliveries
            self._join(first, last)
        for wait in update.waits:
            first, last = max(wait.first, self.start), Offset(min(wait.last, self.end - 1))
            for run in self._cut(first, last) if first <= last else ():
                if run.state is RecordState.AVAILABLE:
                    run.state, run.free_at_ms = RecordState.DELAYED, wait.free_at_ms
            if first <= last:
                self._join(first, last)
        self._begin_at(update.start)
        self._pass_settled()

    def whole(self) -> ShareUpdate:
        """Return everything, as a snapshot has it."""
        return self._update(self._runs)

    def on_durable(self, update: ShareUpdate) -> bool:
        """An update of this leader is durable; say whether records are AVAILABLE by that."""
        is_news = False
        for stored in update.ranges:
            if stored.state is not RecordState.AVAILABLE and self._order is not None:
                is_news |= self._order.leave(stored.first, stored.last)
            if stored.state in SETTLED:
                continue
            first, last = max(stored.first, self.start), min(int(stored.last), self.end - 1)
            for run in self._cut(first, last) if first <= last else ():
                if run.state is RecordState.DYING:
                    run.state = RecordState.ARCHIVING
                elif run.state is RecordState.RELEASED:
                    run.state = RecordState.DELAYED if run.free_at_ms else RecordState.AVAILABLE
                    is_news = True
            self._join(first, last)
        return is_news

    # --- acquire ------------------------------------------------------------------------

    def wanted(self, terms: ShareTerms) -> Offset | None:
        """Return the offset to read from for whoever asks next; None: there is nothing for him
        until something is released, or settled."""
        order = self._order_of(terms)
        if terms.is_ordered and order is None:
            return None
        for run in self._runs:
            first: int | None = None
            if run.state is RecordState.AVAILABLE:
                first = run.first if order is None else order.first_free(run.first, run.last)
            elif run.state is RecordState.DELAYED and order is not None:
                first = order.first_unknown(run.first, run.last)
            if first is not None:
                return Offset(first)
        return self.end if self.end - self.start < terms.window_max else None

    def _order_of(self, terms: ShareTerms) -> KeyOrder | None:
        """Return what is known of keys. With order, None: it begins when what was lent without has
        come back."""
        if not terms.is_ordered:
            self._order = None
        elif self._order is None:
            away = RecordState.ACQUIRED, RecordState.RELEASED
            if not any(run.state in away for run in self._runs):
                self._order = KeyOrder()
        return self._order

    def has_unknown_keys(self, first: Offset, last: Offset) -> bool:
        """Whether order by key asks for the keys of some of these records."""
        if self._order is None or last < self.start:
            return False
        return last >= self.end or self._first_unknown(first, last) is not None

    def _first_unknown(self, first: int, last: int) -> int | None:
        """Return the first record of these, which the window has, that has no known key and will
        be lent."""
        first = max(first, self.start)
        if self._order is None or first > last:
            return None
        for run in self._within(first, last):
            if run.state in _TO_BE_LENT:
                begin, end = max(run.first, first), min(run.last, last)
                found = self._order.first_unknown(begin, end)
                if found is not None:
                    return found
        return None

    def acquire(
        self,
        extents: Iterable[Extent],
        member_id: str,
        now_s: float,
        terms: ShareTerms,
        *,
        read_from: Offset,
        count_max: int,
        is_strict: bool,
        keys: Mapping[int, int] = NO_KEYS,
    ) -> list[Acquired]:
        """Lend records out of batches that were read to a member.

        `keys`: with order by key, offset -> a hash of its key; those that have none are left out.

        `read_from`: where the reading began: what is missing between there and the last batch is in
        no batch, and never will be. `count_max`: records after which no further batch is begun;
        `is_strict`: not even the rest of one.
        """
        assert count_max > 0
        found: list[Acquired] = []
        at: int = max(read_from, self.start)
        if not terms.is_ordered:
            self._order = None
        elif self._order is None or self._first_unknown(0, min(at, self.end) - 1) is not None:
            return found  # the order has begun since he asked where to read
        count = 0
        for first, last, is_wanted in extents:
            if last < at:
                continue
            if first > at:
                self._pass_over(at, first - 1)
            at = max(first, at)
            if not is_wanted:
                self._pass_over(at, last)
            else:
                room = count_max - count if is_strict else last - at + 1
                if last >= self.end and at <= self.end:
                    fits = min(last + 1, self.start + terms.window_max)
                    self._extend(fits - 1, RecordState.AVAILABLE)
                self._learn(at, min(last, self.end - 1), keys)
                taken = self._lend(at, last, room, member_id, now_s, terms, is_first=not found)
                found += taken
                count += sum(one.last - one.first + 1 for one in taken)
                is_alone = any(self._is_last_time(one.deliveries, terms) for one in taken)
                if count >= count_max or is_alone:
                    break
                if self.end <= last:  # the window is full, or a last delivery comes next
                    break
            at = last + 1
        self._pass_settled()
        return found

    def _pass_over(self, first: int, last: int) -> None:
        """There are no such records: nobody will ever settle them."""
        known = min(last, self.end - 1)
        if first <= known:
            for run in self._cut(first, known):
                if run.state in _TO_BE_LENT:
                    run.become(RecordState.ARCHIVED)
            self._join(first, known)
            if self._order is not None:
                self._order.leave(first, known)
        if last >= self.end and first <= self.end:
            self._extend(last, RecordState.ARCHIVED)

    def _lend(
        self,
        first: int,
        last: int,
        room: int,
        member_id: str,
        now_s: float,
        terms: ShareTerms,
        *,
        is_first: bool,
    ) -> list[Acquired]:
        """Lend what is free of [first, last] and in the window, at most `room` records."""
        found: list[Acquired] = []
        last = min(last, self.end - 1)
        for run in self._free_runs(first, last):
            if not room:
                break
            is_alone = self._is_last_time(run.deliveries + 1, terms)
            if is_alone and (found or not is_first):
                break
            until = min(run.last, run.first if is_alone else run.first + room - 1)
            if until < run.last:
                (run,) = self._cut(run.first, until)
            run.state = RecordState.ACQUIRED
            run.deliveries = min(run.deliveries + 1, COUNT_MAX)
            run.holder = member_id
            run.lock_ends_s = now_s + terms.lock_s
            found.append(Acquired(Offset(run.first), Offset(run.last), run.deliveries))
            room -= run.count
            if is_alone:
                break
        self._join(first, last)
        return found

    def _learn(self, first: int, last: int, keys: Mapping[int, int]) -> None:
        """Take in the keys of what is to be lent of [first, last]."""
        if self._order is not None and first <= last:
            for run in self._within(first, last):
                if run.state in _TO_BE_LENT:
                    self._order.learn(max(run.first, first), min(run.last, last), keys)

    def _free_runs(self, first: int, last: int) -> list[_Run]:
        """Return what may be lent of [first, last], in runs that do not reach beyond it."""
        if first > last:
            return []
        spans = [(first, last)] if self._order is None else self._order.free(first, last)
        runs = [run for span in spans for run in self._cut(*span)]
        return [run for run in runs if run.state is RecordState.AVAILABLE]

    @staticmethod
    def _is_last_time(deliveries: int, terms: ShareTerms) -> bool:
        return 1 < terms.deliveries_max <= deliveries

    # --- settle, release, renew -----------------------------------------------------------

    def acknowledge(
        self,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        now_s: float,
        terms: ShareTerms,
        now_ms: int = 0,
    ) -> ShareUpdate | None:
        """Settle, release or renew what a member holds; return what is to be durable before he is
        answered, None: nothing is. `now_ms`: by the wall clock.

        What lies before `start` is settled, and passed over. Raises InvalidRequest,
        InvalidRecordState: nothing was changed then.
        """
        parts = list(self._checked(member_id, acknowledgements, now_s))
        changed: list[_Run] = []
        for first, last, kind in parts:
            for run in self._cut(first, last):
                if kind == RENEW:
                    run.lock_ends_s = now_s + terms.lock_s
                    continue
                if kind == ACCEPT:
                    run.become(RecordState.ACKNOWLEDGED)
                elif kind == RELEASE:
                    self._free(run, terms, now_ms)
                elif kind == REJECT and terms.has_dead_letters:
                    run.become(RecordState.DYING)
                    run.deliveries = -run.deliveries
                else:
                    run.become(RecordState.ARCHIVED)
                changed.append(run)
        return self._changed(changed, [(first, last) for first, last, _ in parts])

    def _checked(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_s: float
    ) -> Iterable[tuple[int, int, int]]:
        """Return (first, last, type) of what is to be changed, if all of it may be."""
        before = -1
        found = []
        for first, last, types in acknowledgements:
            if not before < first <= last:
                raise InvalidRequest(f"records {first} to {last} are named after record {before}")
            if len(types) not in (1, last - first + 1):
                raise InvalidRequest(f"records {first} to {last} have {len(types)} types")
            if not all(GAP <= one <= RENEW for one in types):
                raise InvalidRequest(f"records {first} to {last} have unknown types")
            if last >= self.end:
                raise InvalidRequest(f"record {last} was never acquired")
            before = last
            found += [one for one in _spans(first, last, types) if one[1] >= self.start]
        spans = [(max(first, self.start), last, kind) for first, last, kind in found]
        for begin, end, _ in spans:
            for run in self._within(begin, end):
                is_held = run.state is RecordState.ACQUIRED and run.holder == member_id
                if not is_held or run.lock_ends_s <= now_s:
                    raise InvalidRecordState(
                        f"records {max(begin, run.first)} to {min(end, run.last)} are not held by"
                        f" member {member_id}"
                    )
        return spans

    def release_member(self, member_id: str, terms: ShareTerms) -> ShareUpdate | None:
        """Take back what a member holds that is gone; return what the log has to say of it."""
        return self._take_back([run for run in self._runs if run.holder == member_id], terms)

    def expire(self, now_s: float, terms: ShareTerms, now_ms: int = 0) -> ShareUpdate | None:
        """Take back what has been held too long; return what the log has to say of it."""
        held = [run for run in self._runs if run.state is RecordState.ACQUIRED]
        return self._take_back([run for run in held if run.lock_ends_s <= now_s], terms, now_ms)

    def _take_back(
        self, runs: Sequence[_Run], terms: ShareTerms, now_ms: int = 0
    ) -> ShareUpdate | None:
        for run in runs:
            self._free(run, terms, now_ms)
        return self._changed(runs, [(run.first, run.last) for run in runs])

    @staticmethod
    def _free(run: _Run, terms: ShareTerms, now_ms: int = 0) -> None:
        """`now_ms`: by the wall clock; 0: the record need not wait."""
        if run.deliveries >= terms.deliveries_max:
            has_letter = terms.has_dead_letters
            run.become(RecordState.DYING if has_letter else RecordState.ARCHIVED)
            return
        run.become(RecordState.RELEASED)
        if now_ms and terms.retry_ms:
            doublings = min(max(run.deliveries - 1, 0), _DOUBLINGS_MAX)
            wait_ms = min(terms.retry_ms << doublings, max(terms.retry_max_ms, terms.retry_ms))
            run.free_at_ms = now_ms + wait_ms

    # --- dead letters, and waiting ----------------------------------------------------------

    def archiving(self, count_max: int) -> list[StoredRange]:
        """Return the first records that wait for their dead letters, and no more than so many."""
        found: list[StoredRange] = []
        for run in self._runs:
            if not count_max:
                break
            if run.state is RecordState.ARCHIVING:
                last = min(run.last, run.first + count_max - 1)
                found.append(_stored(run)._replace(last=Offset(last)))
                count_max -= last - run.first + 1
        return found

    def archived(self, ranges: Iterable[StoredRange]) -> ShareUpdate | None:
        """The dead letters of ARCHIVING records are durable; return what the log has to say."""
        changed: list[_Run] = []
        for first, last, *_rest in ranges:
            first, last = Offset(max(first, self.start)), Offset(min(last, self.end - 1))
            for run in self._cut(first, last) if first <= last else ():
                if run.state is RecordState.ARCHIVING:
                    run.become(RecordState.ARCHIVED)
                    changed.append(run)
        return self._changed(changed, [(run.first, run.last) for run in changed])

    def next_free_ms(self) -> int | None:
        """Return when the next record may be lent that waits for its time."""
        waiting = (run.free_at_ms for run in self._runs if run.state is RecordState.DELAYED)
        return min(waiting, default=None)

    def free_due(self, now_ms: int) -> bool:
        """Free what has waited for long enough; say whether anything has."""
        due = [
            run
            for run in self._runs
            if run.state is RecordState.DELAYED and run.free_at_ms <= now_ms
        ]
        for run in due:
            run.state, run.free_at_ms = RecordState.AVAILABLE, 0
        for first, last in [(run.first, run.last) for run in due]:
            self._join(first, last)
        return bool(due)

    def _changed(
        self, runs: Sequence[_Run], spans: Sequence[tuple[int, int]]
    ) -> ShareUpdate | None:
        changed = self._update(runs)
        for first, last in spans:
            self._join(first, last)
        self._pass_settled()
        if not changed.ranges:
            return None
        return changed._replace(start=self.start)

    def _update(self, runs: Sequence[_Run]) -> ShareUpdate:
        ranges = [_stored(run) for run in runs]
        waits = [
            Wait(Offset(run.first), Offset(run.last), run.free_at_ms)
            for run in runs
            if run.free_at_ms
        ]
        return ShareUpdate(self.group_id, self.incarnation, self.epoch, self.start, ranges, waits)

    # --- the window -----------------------------------------------------------------------

    def trim(self, log_start: Offset) -> None:
        """What lies before `log_start` is no longer there."""
        if log_start <= self.start:
            return
        end = min(log_start, self.end) - 1
        stay = RecordState.DYING, RecordState.ARCHIVING
        gone = self._cut(self.start, end) if self.start <= end else []
        if any(run.state in stay for run in gone):  # their dead letters are not written
            for run in gone:
                if run.state not in stay:
                    run.become(RecordState.ARCHIVED)
            self._extend(log_start - 1, RecordState.ARCHIVED)
            self._join(self.start, log_start - 1)
        else:
            self._begin_at(log_start)
        if self._order is not None:
            self._order.leave(0, log_start - 1)
        self._pass_settled()

    def next_lock_s(self) -> float | None:
        """Return when the next lock passes."""
        held = (run.lock_ends_s for run in self._runs if run.state is RecordState.ACQUIRED)
        return min(held, default=None)

    @property
    def run_count(self) -> int:
        """How many runs the window consists of."""
        return len(self._runs)

    def counts(self) -> ShareCounts:
        """Count the records of the window."""
        held = sum(run.count for run in self._runs if run.state is RecordState.ACQUIRED)
        settled = sum(run.count for run in self._runs if run.state in SETTLED)
        dying = RecordState.DYING, RecordState.ARCHIVING
        archiving = sum(run.count for run in self._runs if run.state in dying)
        free = self.end - self.start - held - settled - archiving
        return ShareCounts(free, held, settled, archiving)

    def _begin_at(self, start: int) -> None:
        if start >= self.end:
            self._runs = []
            self.end = Offset(start)
        elif start > self.start:
            self._cut(start, self.end - 1)
            self._runs = [run for run in self._runs if run.first >= start]
        self.start = max(Offset(start), self.start)

    def _pass_settled(self) -> None:
        runs = self._runs
        count = 0
        while count < len(runs) and runs[count].state in SETTLED:
            self.start = Offset(runs[count].last + 1)
            count += 1
        del runs[:count]

    def _extend(self, last: int, state: RecordState, deliveries: int = 0) -> None:
        """Let the window end after `last`, if it ends before."""
        if last < self.end:
            return
        self._runs.append(_Run(self.end, last, state, deliveries))
        self.end = Offset(last + 1)
        if len(self._runs) > 1:
            self._join(last, last)

    def _at(self, offset: int) -> int:
        """Return the place of the run with an offset of the window."""
        return bisect_right(self._runs, offset, key=_FIRST) - 1

    def _within(self, first: int, last: int) -> list[_Run]:
        return self._runs[self._at(first) : self._at(last) + 1]

    def _cut(self, first: int, last: int) -> list[_Run]:
        """Return the runs of [first, last], which lies in the window; none reaches beyond."""
        self._split(first)
        self._split(last + 1)
        return self._within(first, last)

    def _split(self, offset: int) -> None:
        """Let a run begin at an offset of the window."""
        if not self.start <= offset < self.end:
            return
        at = self._at(offset)
        run = self._runs[at]
        if run.first < offset:
            rest = _Run(
                offset, run.last, run.state, run.deliveries, run.holder, run.lock_ends_s,
                run.free_at_ms,
            )  # fmt: skip
            run.last = offset - 1
            self._runs.insert(at + 1, rest)

    def _join(self, first: int, last: int) -> None:
        """Make one of neighbours that are alike, around [first, last]."""
        runs = self._runs
        if not runs:
            return
        low = max(self._at(max(first, self.start)) - 1, 0)
        high = min(self._at(min(last, self.end - 1)) + 2, len(runs))
        joined: list[_Run] = []
        for run in runs[low:high]:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) < high - low:
            runs[low:high] = joined

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        assert self.start <= self.end
        at: int = self.start
        for run in self._runs:
            assert run.first == at <= run.last
            assert (run.state is RecordState.ACQUIRED) == bool(run.holder)
            assert run.state in SETTLED or abs(run.deliveries) <= COUNT_MAX
            assert run.deliveries >= 0 or run.state in (RecordState.DYING, RecordState.ARCHIVING)
            assert not run.free_at_ms or run.state in (RecordState.RELEASED, RecordState.DELAYED)
            at = run.last + 1
        assert at == self.end
        assert not self._runs or self._runs[0].state not in SETTLED
        assert not any(one.is_like(two) for one, two in pairwise(self._runs))


def _stored(run: _Run) -> StoredRange:
    if run.state in (RecordState.DYING, RecordState.ARCHIVING):
        state = RecordState.ARCHIVING
    else:
        state = run.state if run.state in SETTLED else RecordState.AVAILABLE
    return StoredRange(Offset(run.first), Offset(run.last), state, run.deliveries)


def _spans(first: int, last: int, types: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """Return (first, last, type) of neighbours that have the same type."""
    if len(types) == 1:
        return [(first, last, types[0])]
    found: list[tuple[int, int, int]] = []
    for offset, kind in enumerate(types, first):
        if found and found[-1][2] == kind:
            found[-1] = (found[-1][0], offset, kind)
        else:
            found.append((offset, offset, kind))
    return found

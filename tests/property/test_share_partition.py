"""The window of a share group against a twin that knows each record by itself.

The twin is an array of records; the window is a list of runs. Members acquire, settle, release and
renew, locks pass, members go, updates become durable in order, and leaders take over at any point
of them. After each step both say the same of every record, and what must hold does: a record has
one holder (S2), what was answered stays settled (S3, S5), counts are bounded (S4), a request takes
effect as a whole or not at all (S7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.errors import InvalidRecordState, InvalidRequest
from broker.partition.core.shares.share_partition import (
    ACCEPT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Extent,
    SharePartition,
    ShareTerms,
)
from broker.partition.core.shares.share_states import ShareStates
from broker.partition.core.shares.share_updates import (
    SETTLED,
    RecordState,
    ShareUpdate,
    decode_updates,
    encode_updates,
)
from client.ids import Offset

GROUP = "g"
INCARNATION = UUID(int=7)
TERMS = ShareTerms(lock_s=10.0, deliveries_max=3, window_max=12)
MEMBERS = st.sampled_from(["one", "two", "three"])
GONE = RecordState.ARCHIVED


@dataclass
class Record:
    """One record as the twin knows it."""

    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    holder: str = ""
    lock_ends_s: float = 0.0

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED


class Twin(RuleBasedStateMachine):
    """The window under test, the twin, and the log."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ShareStates()
        self.log: list[ShareUpdate] = [self.states.begin(GROUP, INCARNATION, Offset(0))]
        self.durable = 1
        """How many of the log's updates are."""
        self.records: list[Record] = []
        self.now_s = 100.0
        self.answered: set[int] = set()
        self.waiting: list[tuple[int, set[int]]] = []
        """After how many updates which settled records are answered."""
        self.delivered: dict[int, int] = {}
        self.takeovers = 0

    @property
    def share(self) -> SharePartition:
        found = self.states.get(GROUP)
        assert found is not None
        return found

    def _written(self, update: ShareUpdate | None) -> None:
        if update is not None:
            self.log.append(update)

    def _free(self, record: Record) -> None:
        is_over = record.deliveries >= TERMS.deliveries_max
        record.state = GONE if is_over else RecordState.RELEASED
        record.holder = ""

    @rule(
        member=MEMBERS,
        sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
        hole=st.sampled_from([0, 0, 0, 2]),
        count_max=st.integers(1, 8),
        is_strict=st.booleans(),
        is_wanted=st.sampled_from([True, True, True, False]),
    )
    def acquire(
        self,
        member: str,
        sizes: list[int],
        hole: int,
        count_max: int,
        is_strict: bool,
        is_wanted: bool,
    ) -> None:
        read_from = self.share.wanted(TERMS)
        if read_from is None:
            assert self.share.end - self.share.start >= TERMS.window_max
            return
        extents, at = [], read_from + hole
        for size in sizes:
            extents.append(Extent(Offset(at), Offset(at + size - 1), is_wanted))
            at += size
        start = self.share.start
        before = [replace(one) for one in self.records]
        acquired = self.share.acquire(
            extents,
            member,
            self.now_s,
            TERMS,
            read_from=read_from,
            count_max=count_max,
            is_strict=is_strict,
        )
        self._grow()
        lent = {n for one in acquired for n in range(one.first, one.last + 1)}
        assert sum(one.last - one.first + 1 for one in acquired) == len(lent), "each once"
        assert not is_strict or len(lent) <= count_max
        for one in acquired:
            assert one.deliveries < TERMS.deliveries_max or len(lent) == 1, "LAST-ALONE"
            for n in range(one.first, one.last + 1):
                record = before[n] if n < len(before) else Record()
                assert record.state is RecordState.AVAILABLE, "FREE-ONLY"
                assert any(extent.first <= n <= extent.last for extent in extents)
                assert one.deliveries == record.deliveries + 1
                assert n < start + TERMS.window_max or n < len(before), "BOUNDED"
                assert n not in self.answered
                self.delivered[n] = self.delivered.get(n, 0) + 1
                self.records[n] = Record(
                    RecordState.ACQUIRED, one.deliveries, member, self.now_s + TERMS.lock_s
                )
        for n in range(read_from, read_from + hole):
            if n < len(self.records) and self.records[n].state is RecordState.AVAILABLE:
                self.records[n] = Record(GONE)
        if not is_wanted:
            assert not lent
            for n in range(read_from, at):
                if n < len(self.records) and self.records[n].state is RecordState.AVAILABLE:
                    self.records[n] = Record(GONE)
        if is_wanted and not hole and read_from < start + TERMS.window_max:
            assert read_from in lent, "what can be had is given"

    def _grow(self) -> None:
        while len(self.records) < self.share.end:
            self.records.append(Record())

    @rule(
        member=MEMBERS,
        first=st.integers(0, 30),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=6),
        is_one=st.booleans(),
    )
    def acknowledge(self, member: str, first: int, kinds: list[int], is_one: bool) -> None:
        self._acknowledge(member, first + max(self.share.start - 3, 0), kinds, is_one)

    @rule(pick=st.integers(0, 100), kinds=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def acknowledge_what_is_held(self, pick: int, kinds: list[int]) -> None:
        held = [n for n, one in enumerate(self.records) if one.state is RecordState.ACQUIRED]
        if held:
            first = held[pick % len(held)]
            member = self.records[first].holder
            count = 1
            while (
                count < len(kinds)
                and first + count < len(self.records)
                and self.records[first + count].holder == member
            ):
                count += 1
            self._acknowledge(member, first, kinds[:count], is_one=False)

    def _acknowledge(self, member: str, first: int, kinds: list[int], is_one: bool) -> None:
        last = first + len(kinds) - 1
        types = kinds[:1] if is_one else kinds
        share = self.share
        named = [n for n in range(first, last + 1) if n >= share.start]
        is_held = all(
            n < len(self.records)
            and self.records[n].holder == member
            and self.records[n].lock_ends_s > self.now_s
            for n in named
        )
        before = (share.whole(), [replace(one) for one in self.records])
        asked = [Acknowledgement(Offset(first), Offset(last), types)]
        try:
            update = share.acknowledge(member, asked, self.now_s, TERMS)
        except (InvalidRecordState, InvalidRequest):
            assert not is_held or last >= len(self.records)
            assert before == (share.whole(), self.records), "ALL-OR-NONE"
            return
        assert is_held, "OWN-ONLY"
        settled = set()
        for n in named:
            record, kind = self.records[n], types[0] if is_one else types[n - first]
            if kind == RENEW:
                record.lock_ends_s = self.now_s + TERMS.lock_s
            elif kind == RELEASE:
                self._free(record)
            else:
                state = RecordState.ACKNOWLEDGED if kind == ACCEPT else GONE
                self.records[n] = Record(state)
                settled.add(n)
        self._written(update)
        self.waiting.append((len(self.log), settled))

    @rule(by_s=st.sampled_from([1.0, 6.0, 11.0]))
    def time_passes(self, by_s: float) -> None:
        self.now_s += by_s
        self._written(self.share.expire(self.now_s, TERMS))
        for record in self.records:
            if record.state is RecordState.ACQUIRED and record.lock_ends_s <= self.now_s:
                self._free(record)
        next_s = self.share.next_lock_s()
        assert next_s is None or next_s > self.now_s

    @rule(member=MEMBERS)
    def member_goes(self, member: str) -> None:
        self._written(self.share.release_member(member, TERMS))
        for record in self.records:
            if record.holder == member:
                self._free(record)

    @precondition(lambda self: self.durable < len(self.log))
    @rule()
    def becomes_durable(self) -> None:
        update = self.log[self.durable]
        self.durable += 1
        self.share.on_durable(update)
        for one in update.ranges:
            for n in range(one.first, one.last + 1):
                if self.records[n].state is RecordState.RELEASED:
                    self.records[n].state = RecordState.AVAILABLE
        for after, settled in self.waiting:
            if after <= self.durable:
                self.answered |= settled
        self.waiting = [one for one in self.waiting if one[0] > self.durable]

    @rule(kept=st.integers(0, 3), snapshot=st.booleans())
    def taken_over(self, kept: int, snapshot: bool) -> None:
        """A snapshot is behind all that was accepted so far, durable or not."""
        self.takeovers += 1
        kept = min(self.durable + kept, len(self.log))
        states = ShareStates()
        if snapshot and kept == len(self.log):
            states.restore(memoryview(self.states.encode()))
            self.log = [*self.log, self.share.whole()]
            kept = len(self.log)
        else:
            for update in decode_updates(memoryview(encode_updates(self.log[:kept]))):
                states.apply(update)
            del self.log[kept:]
        self.durable = kept
        self.states = states
        self.waiting = []
        share = self.share
        share.check()
        known = {n: one for one in share.whole().ranges for n in range(one.first, one.last + 1)}
        self.records = [
            Record(GONE) if n < share.start else Record(known[n].state, known[n].deliveries)
            for n in range(share.end)
        ]
        for n in self.answered:
            assert n < share.end and self.records[n].is_settled, "S3"

    @rule(by=st.integers(0, 4))
    def trimmed(self, by: int) -> None:
        start = Offset(self.share.start + by)
        self.share.trim(start)
        self._grow()
        for n in range(start):
            self.records[n] = Record(GONE)

    @invariant()
    def same_of_every_record(self) -> None:
        share = self.share
        share.check()
        assert share.end == len(self.records)
        for n, record in enumerate(self.records):
            if n < share.start:
                assert record.is_settled, f"record {n} was passed over"
                continue
            (run,) = share._within(n, n)
            assert run.state is record.state
            assert run.holder == record.holder
            assert record.is_settled or run.deliveries == record.deliveries
            if record.state is RecordState.ACQUIRED:
                assert run.lock_ends_s == record.lock_ends_s
        assert all(self.records[n].is_settled for n in self.answered), "S5"
        for times in self.delivered.values():
            assert times <= TERMS.deliveries_max + self.takeovers, "S4"
        counts = share.counts()
        assert sum(counts) == share.end - share.start

    @invariant()
    def replayed_it_is_the_same(self) -> None:
        states = ShareStates()
        states.restore(memoryview(self.states.encode()))
        again = states.get(GROUP)
        assert again is not None
        assert again.whole().ranges == _merged(self.share.whole())


def _merged(update: ShareUpdate) -> list[object]:
    """What only memory tells apart is one range for the log."""
    found: list[object] = []
    for one in update.ranges:
        before = found[-1] if found else None
        if before is not None and before[2:] == one[2:]:  # type: ignore[index]
            found[-1] = before._replace(last=one.last)  # type: ignore[attr-defined]
        else:
            found.append(one)
    return found


TestTwin = Twin.TestCase
TestTwin.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)

"""Order by key, dead letters and waits of a share group, through releases, takeovers and trims.

A log of records with few keys; members take, settle, release and reject; locks pass; updates become
durable in order; letters are written, and leaders are replaced between any two steps. What must
hold is asked of what is seen from outside: no two records of a key are in flight, deliveries of a
key are in order, nothing comes before its time or after its letter, what is archived for a letter
has one, and in the end everything is settled.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.partition.core.shares.share_partition import (
    ACCEPT,
    REJECT,
    RELEASE,
    Acknowledgement,
    Extent,
    SharePartition,
    ShareTerms,
)
from broker.partition.core.shares.share_states import ShareStates
from broker.partition.core.shares.share_updates import (
    RecordState,
    ShareUpdate,
    StoredRange,
    decode_updates,
    encode_updates,
)
from client.ids import Offset

RECORDS = 24
TERMS = ShareTerms(
    lock_s=10.0, deliveries_max=3, window_max=10, has_dead_letters=True, is_ordered=True,
    retry_ms=3_000, retry_max_ms=5_000,
)  # fmt: skip
MEMBERS = st.sampled_from(["one", "two"])


def key_of(offset: int) -> int | None:
    return None if offset % 5 == 4 else offset * 7 % 3


KEYS = {n: key for n in range(RECORDS) if (key := key_of(n)) is not None}


class OrderedShare(RuleBasedStateMachine):
    """A window, its log, and what was seen of it."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ShareStates()
        self.log: list[ShareUpdate] = [self.states.begin("g", UUID(int=7), Offset(0))]
        self.durable = 1
        self.now_s, self.now_ms = 100.0, 1_000_000
        self.held: dict[int, str] = {}
        self.not_before: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        """Of each key the last record that was delivered."""
        self.dying: set[int] = set()
        self.letters: dict[int, int] = {}
        self.sent: list[StoredRange] = []
        self.takeovers = 0
        self.log_start = Offset(0)
        """Durable by itself: the list of segments has it."""

    @property
    def share(self) -> SharePartition:
        found = self.states.get("g")
        assert found is not None
        return found

    def written(self, update: ShareUpdate | None) -> None:
        if update is not None:
            self.log.append(update)

    @rule(member=MEMBERS, sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
          count_max=st.integers(1, 6), is_strict=st.booleans())  # fmt: skip
    def take(
        self, member: str, sizes: list[int], count_max: int = 6, is_strict: bool = False
    ) -> None:
        share = self.share
        share.free_due(self.now_ms)
        read_from = share.wanted(TERMS)
        if read_from is None or read_from >= RECORDS:
            return
        extents: list[Extent] = []
        at = int(read_from)
        for size in sizes:
            last = min(at + size, RECORDS) - 1
            if at <= last:
                extents.append(Extent(Offset(at), Offset(last)))
            at = last + 1
        acquired = share.acquire(
            extents, member, self.now_s, TERMS,
            read_from=read_from, count_max=count_max, is_strict=is_strict, keys=KEYS,
        )  # fmt: skip
        for one in acquired:
            for n in range(one.first, one.last + 1):
                self.delivered(n, member)

    def delivered(self, n: int, member: str) -> None:
        assert n not in self.held, "FREE-ONLY"
        assert not self.letters.get(n), "ARCHIVING-FIRST"
        assert self.not_before.get(n, 0) <= self.now_ms, "NOT-BEFORE"
        key = key_of(n)
        if key is not None:
            assert all(key_of(other) != key for other in self.held), "ONE-OF-KEY"
            assert self.newest.get(key, -1) <= n, "in order, KEY-LATE"
            self.newest[key] = n
        self.held[n] = member

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 20), kind=st.sampled_from([ACCEPT, ACCEPT, RELEASE, REJECT]))
    def settle(self, pick: int, kind: int) -> None:
        n = sorted(self.held)[pick % len(self.held)]
        member = self.held.pop(n)
        asked = [Acknowledgement(Offset(n), Offset(n), [kind])]
        update = self.share.acknowledge(member, asked, self.now_s, TERMS, self.now_ms)
        self.written(update)
        if n >= self.share.start:
            self.came_back(n)

    def came_back(self, n: int) -> None:
        (run,) = self.share._within(n, n)
        if run.state is RecordState.DYING:
            self.dying.add(n)
        if run.free_at_ms:
            self.not_before[n] = run.free_at_ms

    @rule(by_s=st.sampled_from([1, 4, 11]))
    def time_passes(self, by_s: int) -> None:
        self.now_s += by_s
        self.now_ms += 1_000 * by_s
        self.written(self.share.expire(self.now_s, TERMS, self.now_ms))
        for n in list(self.held):
            gone = n < self.share.start
            if gone or self.share._within(n, n)[0].state is not RecordState.ACQUIRED:
                del self.held[n]
                if not gone:
                    self.came_back(n)
        self.share.free_due(self.now_ms)
        next_ms = self.share.next_free_ms()
        assert next_ms is None or next_ms > self.now_ms

    @precondition(lambda self: self.durable < len(self.log))
    @rule()
    def becomes_durable(self) -> None:
        self.durable += 1
        self.share.on_durable(self.log[self.durable - 1])

    @rule(count=st.integers(1, 3))
    def letters_are_written(self, count: int) -> None:
        if self.sent:
            return  # what is sent again is known by its numbers
        self.sent = self.share.archiving(count)
        for first, last, *_ in self.sent:
            for n in range(first, last + 1):
                assert n in self.dying
                self.letters[n] = self.letters.get(n, 0) + 1

    @precondition(lambda self: self.sent)
    @rule()
    def letters_are_known(self) -> None:
        self.written(self.share.archived(self.sent))
        self.sent = []

    @rule(kept=st.integers(0, 3))
    def taken_over(self, kept: int) -> None:
        self.takeovers += 1
        self.durable = min(self.durable + kept, len(self.log))
        del self.log[self.durable :]
        self.states = self.replayed()
        self.share.trim(self.log_start)
        self.sent, self.held = [], {}
        self.not_before = {
            n: run.free_at_ms
            for run in self.share._runs
            for n in range(run.first, run.last + 1)
            if run.free_at_ms
        }

    def replayed(self) -> ShareStates:
        states = ShareStates()
        for update in decode_updates(memoryview(encode_updates(self.log[: self.durable]))):
            states.apply(update)
        return states

    @rule(by=st.integers(1, 3))
    def trimmed(self, by: int) -> None:
        start = min(self.share.start + by, RECORDS)
        self.log_start = Offset(max(self.log_start, start))
        self.share.trim(self.log_start)
        self.held = {n: one for n, one in self.held.items() if n >= start}
        kept = {n for one in self.share.whole().ranges for n in range(one.first, one.last + 1)}
        dying = {n for n in self.dying if n < start and not self.letters.get(n)}
        assert dying <= kept | self.maybe_lost(), "LETTER-FIRST"

    def maybe_lost(self) -> set[int]:
        """What was to get a letter under a leader whose log does not know that."""
        share = self.share
        known = {
            n
            for one in share.whole().ranges
            if one.state is RecordState.ARCHIVING
            for n in range(one.first, one.last + 1)
        }
        return self.dying - known if self.takeovers else set()

    @invariant()
    def what_is_archived_has_its_letter(self) -> None:
        self.share.check()
        if self.share._order is not None:
            self.share._order.check()
            assert len(self.share._order) <= TERMS.window_max + RECORDS
        found = self.replayed().get("g")
        assert found is not None
        for one in found.whole().ranges:
            for n in range(one.first, one.last + 1):
                if one.state is RecordState.ARCHIVED and n in self.dying and not self.takeovers:
                    assert self.letters.get(n), "LETTER-FIRST"
        assert all(count <= 1 + self.takeovers for count in self.letters.values()), "LETTER-ONCE"

    def teardown(self) -> None:
        """Whatever has happened, members that go on asking settle everything."""
        for _ in range(RECORDS * 20):
            if self.share.start >= RECORDS:
                break
            while self.durable < len(self.log):
                self.becomes_durable()
            self.letters_are_written(10)
            if self.sent:
                self.letters_are_known()
            self.time_passes(11)
            self.take("one", [6, 6])
            while self.held:
                self.settle(0, ACCEPT)
        assert self.share.start >= RECORDS, "nothing is stuck"


TestOrderedShare = OrderedShare.TestCase
TestOrderedShare.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

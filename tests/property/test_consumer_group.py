"""Members of the consumer protocol that come, go, fall silent and lose answers, while topics change
and the coordinator moves: a partition has one reader, epochs never fall, commits come from owners,
and in the end everybody has its part."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.errors import (
    BrokerError,
    FencedMemberEpoch,
    NotCoordinator,
    StaleMemberEpoch,
    UnknownMember,
)
from broker.groups.core.consumer_heartbeat import ConsumerHeartbeatReply
from broker.groups.core.group_types import GroupConfig, GroupState
from tests.fakes.consumer_group_bench import GROUP, ConsumerBench
from tests.fakes.group_topics import FakeTopics

SLOTS = range(4)
TOPICS = ("t", "u")
PATTERN = "[tu]"
Place = tuple[str, int]


class Consumer:
    """One consumer. `reads` is what it may be reading; it gives up before it says so."""

    def __init__(self, name: str, wish: str) -> None:
        self.name = name
        self.wish = wish
        self.epoch = 0
        self.highest = 0
        self.reads: set[Place] = set()
        self.is_full = True
        """Whether the next heartbeat says everything, as after a lost answer."""

    def owned(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, index in sorted(self.reads):
            found.setdefault(topic, []).append(index)
        return found


class ConsumerGroupMachine(RuleBasedStateMachine):
    """The model knows what each consumer was told, and nothing of how the group comes to it."""

    def __init__(self) -> None:
        super().__init__()
        config = GroupConfig(consumer_assignment_interval_ms=500)
        self.bench = ConsumerBench(config, FakeTopics(t=3, u=2))
        self.consumers: dict[int, Consumer] = {}
        self.made = 0
        self.committed: dict[Place, int] = {}
        self.next_offset = 0

    # --- members --------------------------------------------------------------------------------

    @rule(slot=st.sampled_from(SLOTS), wish=st.sampled_from(("t", "u", "tu", "pattern")))
    def come(self, slot: int, wish: str) -> None:
        if slot not in self.consumers:
            self.made += 1
            self.consumers[slot] = Consumer(f"m{self.made}", wish)
            self.beat(slot, is_lost=False)

    @rule(slot=st.sampled_from(SLOTS), is_lost=st.booleans())
    def beat(self, slot: int, is_lost: bool) -> None:
        one = self.consumers.get(slot)
        if one is None:
            return
        more = {}
        if one.epoch == 0 or one.is_full:
            more = {
                "topics": None if one.wish == "pattern" else list(one.wish),
                "pattern": PATTERN if one.wish == "pattern" else None,
                "rebalance_timeout_ms": 20_000,
            }
        owned = one.owned()
        token = self.bench.heartbeat(one.name, one.epoch, owned=owned, **more)  # type: ignore[arg-type]
        answer = self.bench.replies[token]
        if is_lost:
            one.is_full = True
            return
        if isinstance(answer, FencedMemberEpoch | UnknownMember):
            one.reads.clear()
            one.epoch = 0
            return
        assert isinstance(answer, ConsumerHeartbeatReply), answer
        one.is_full = False
        one.epoch = answer.epoch
        assert answer.epoch >= one.highest, "epochs never fall"
        one.highest = answer.epoch
        told = self.bench.told(token)
        if told is not None:
            one.reads = {(topic, index) for topic, some in told.items() for index in some}

    @rule(slot=st.sampled_from(SLOTS))
    def leave(self, slot: int) -> None:
        one = self.consumers.pop(slot, None)
        if one is not None:
            self.bench.heartbeat(one.name, -1)

    @rule(slot=st.sampled_from(SLOTS))
    def die(self, slot: int) -> None:
        self.consumers.pop(slot, None)

    @rule(slot=st.sampled_from(SLOTS), data=st.data())
    def commit(self, slot: int, data: st.DataObject) -> None:
        one = self.consumers.get(slot)
        if one is None or not one.reads:
            return
        topic, index = data.draw(st.sampled_from(sorted(one.reads)))
        self.next_offset += 1
        token = self.bench.commit(
            self.next_offset, index, member=one.name, epoch=one.epoch, topic=topic
        )
        answer = self.bench.replies[token]
        if isinstance(answer, BrokerError):
            assert isinstance(answer, StaleMemberEpoch | UnknownMember), answer
        else:
            assert one.name in self.members(), "a stranger committed"
            self.committed[topic, index] = self.next_offset

    # --- the world ------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.3, 1.0, 5.0, 15.0, 50.0)))
    def wait(self, seconds: float) -> None:
        self.bench.advance(seconds)

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        known = self.bench.topics.get(topic)
        assert known is not None
        if known.partition_count < 6:
            self.bench.topics.put(topic, known.partition_count + 1)

    @rule(is_copied=st.booleans())
    def move_coordinator(self, is_copied: bool) -> None:
        if is_copied:
            self.bench.copy_log()
        self.bench.move_coordinator()

    @rule(slot=st.sampled_from(SLOTS))
    @precondition(lambda self: self.consumers)
    def refuse_one(self, slot: int) -> None:
        """The log refuses what a heartbeat writes; the client hears nothing of use."""
        one = self.consumers.get(slot)
        if one is None or one.epoch == 0:
            return
        self.bench.slow = True
        self.bench.heartbeat(one.name, one.epoch, owned=one.owned())
        self.bench.refuse(NotCoordinator("no"))
        self.bench.slow = False
        self.bench.finish()
        one.is_full = True

    # --- what always holds ---------------------------------------------------------------------

    def members(self) -> set[str]:
        group = self.bench.shard.view.describe_consumer(GROUP)
        return set() if group is None else {one.member_id for one in group.members}

    @invariant()
    def a_partition_has_one_reader(self) -> None:
        known = self.members()
        readers: dict[Place, str] = {}
        for one in self.consumers.values():
            if one.name in known:  # others are fenced, and do not know it yet
                for place in one.reads:
                    assert readers.setdefault(place, one.name) == one.name, place

    @invariant()
    def commits_stay(self) -> None:
        for (topic, index), offset in self.committed.items():
            assert self.bench.offset(index, topic) == offset

    def teardown(self) -> None:
        """Left alone, everybody gets to where it is to be."""
        for _ in range(25):
            for slot in list(self.consumers):
                self.beat(slot, is_lost=False)
            self.bench.advance(3.0)
        wanted = set()
        for one in self.consumers.values():
            for topic in TOPICS if one.wish == "pattern" else one.wish:
                known = self.bench.topics.get(topic)
                assert known is not None
                wanted.update((topic, index) for index in range(known.partition_count))
        read = [place for one in self.consumers.values() for place in one.reads]
        assert sorted(read) == sorted(wanted)
        headline = self.bench.shard.view.headline(GROUP)
        if self.consumers:
            assert headline is not None
            assert headline.state is GroupState.STABLE


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)

"""When a metadata answer waits for a partition's next leader, and for how long at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from broker.cluster.core.topology import TopicInfo
from broker.cluster.leader_changes import LeaderChangeTracker
from client.ids import BrokerId, LeaderEpoch
from tests.fakes import virtual_time
from tests.fakes.topics import topic_info

HOLD_MS = 300
TOPIC = topic_info(2)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class World:
    """A plan, epochs and doubts that a test changes; also the epochs and the peers."""

    def __init__(self) -> None:
        self.topic_by_id = {TOPIC.topic_id: TOPIC}
        self.owners = [ONE, TWO]
        self.epochs = [5, 5]
        self.suspected: set[BrokerId] = set()
        self.unopened: set[int] = set()
        self.asked: list[BrokerId] = []
        self.loads = 0
        self.listeners: list[Callable[[], None]] = []
        self.leader_changes = LeaderChangeTracker(self, self, HOLD_MS / 1e3)

    @property
    def leader_epochs(self) -> World:
        return self

    def preferred_leaders(self, topic: TopicInfo) -> tuple[BrokerId, ...]:
        return tuple(self.owners)

    def add_listener(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def of(self, topic: TopicInfo) -> tuple[LeaderEpoch, ...]:
        return tuple(map(LeaderEpoch, self.epochs))

    def unled(self, topic: TopicInfo) -> frozenset[int]:
        return frozenset(self.unopened)

    async def load(self, topics: Iterable[TopicInfo]) -> None:
        self.loads += 1

    async def ask(self, brokers: Iterable[BrokerId]) -> None:
        self.asked += brokers

    def is_suspected(self, broker: BrokerId) -> bool:
        return broker in self.suspected

    async def settle_ms(self, topic: TopicInfo = TOPIC) -> int:
        """Return how long an answer about the topic waits."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self.leader_changes.settle([topic])
        return round(1e3 * (loop.time() - began_s))

    def later(self, delay_s: float, change: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(delay_s, change)


def test_what_has_a_leader_waits_for_nothing_and_its_leaders_are_asked_first() -> None:
    async def scenario() -> None:
        world = World()
        for _ in range(3):
            assert await world.settle_ms() == 0
        assert world.asked == 3 * [ONE, TWO]
        assert world.loads == 3

    virtual_time.run(scenario())


def test_an_answer_waits_for_the_next_leader() -> None:
    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.owners[0] = THREE
        world.later(0.1, lambda: world.epochs.__setitem__(0, 6))
        assert 100 <= await world.settle_ms() < 110
        assert await world.settle_ms() == 0

    virtual_time.run(scenario())


def test_a_leader_in_doubt_is_not_named() -> None:
    """Its connection breaks; the plan changes; the next one takes over."""

    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.suspected.add(TWO)
        world.later(0.05, lambda: world.owners.__setitem__(1, ONE))
        world.later(0.12, lambda: world.epochs.__setitem__(1, 6))
        assert 120 <= await world.settle_ms() < 130

    virtual_time.run(scenario())


def test_a_doubt_about_a_broker_that_nobody_asked_of_before_is_no_other() -> None:
    async def scenario() -> None:
        world = World()
        world.suspected.add(TWO)
        world.later(0.05, lambda: world.owners.__setitem__(1, ONE))
        world.later(0.12, lambda: world.epochs.__setitem__(1, 6))
        assert 120 <= await world.settle_ms() < 130

    virtual_time.run(scenario())


def test_a_doubt_that_was_wrong_is_forgotten() -> None:
    async def scenario() -> None:
        world = World()
        world.suspected.add(ONE)
        world.later(0.05, world.suspected.clear)
        assert 50 <= await world.settle_ms() < 60
        world.suspected.add(ONE)
        assert HOLD_MS <= await world.settle_ms() < HOLD_MS + 10, "the time begins anew"

    virtual_time.run(scenario())


def test_the_next_leader_may_be_seen_before_the_plan_that_wants_it() -> None:
    """The epoch of a leader in doubt is not taken for its own."""

    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.suspected.add(ONE)
        world.later(0.02, lambda: world.epochs.__setitem__(0, 6))
        world.later(0.05, lambda: world.owners.__setitem__(0, THREE))
        assert 50 <= await world.settle_ms() < 60

    virtual_time.run(scenario())


def test_an_answer_waits_for_the_first_leader_of_a_new_partition() -> None:
    async def scenario() -> None:
        world = World()
        world.epochs, world.unopened = [-1, -1], {0, 1}
        world.later(0.02, lambda: world.unopened.discard(1))
        world.later(0.05, world.unopened.clear)
        assert 50 <= await world.settle_ms() < 60
        assert await world.settle_ms() == 0

    virtual_time.run(scenario())


def test_a_new_partition_that_nobody_opens_holds_answers_back_once() -> None:
    async def scenario() -> None:
        world = World()
        world.epochs, world.unopened = [0, -1], {1}
        assert HOLD_MS <= await world.settle_ms() < HOLD_MS + 10
        assert await world.settle_ms() == 0

    virtual_time.run(scenario())


def test_an_old_epoch_is_no_base_for_the_next_takeover() -> None:
    """The last answer was given before the leader that is in doubt took over itself."""

    async def scenario() -> None:
        world = World()
        world.epochs = [-1, -1]
        await world.settle_ms()
        world.epochs = [0, 0]
        world.suspected.add(ONE)
        world.later(0.05, lambda: world.owners.__setitem__(0, THREE))
        world.later(0.12, lambda: world.epochs.__setitem__(0, 1))
        assert 120 <= await world.settle_ms() < 130

    virtual_time.run(scenario())


def test_a_leader_that_stays_in_doubt_is_none() -> None:
    async def scenario() -> None:
        world = World()
        world.suspected.add(ONE)
        assert HOLD_MS <= await world.settle_ms() < HOLD_MS + 10
        assert world.leader_changes.suspected(TOPIC) == {ONE}
        world.owners[0] = THREE
        assert not world.leader_changes.suspected(TOPIC)
        world.owners = []
        assert not world.leader_changes.suspected(TOPIC)

    virtual_time.run(scenario())


def test_a_takeover_that_nobody_asked_about_is_the_base_of_the_next() -> None:
    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.owners[0], world.epochs[0] = TWO, 6
        world.suspected.add(TWO)
        world.later(0.05, lambda: world.owners.__setitem__(0, THREE))
        world.later(0.05, lambda: world.owners.__setitem__(1, THREE))
        world.later(0.06, lambda: world.epochs.__setitem__(1, 6))
        world.later(0.15, lambda: world.epochs.__setitem__(0, 7))
        assert 150 <= await world.settle_ms() < 160

    virtual_time.run(scenario())


def test_no_partition_holds_answers_back_for_longer_than_allowed() -> None:
    """However many partitions, answers and changes of the plan there are."""

    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.owners = [THREE, THREE]
        assert HOLD_MS <= await world.settle_ms() < HOLD_MS + 10
        assert await world.settle_ms() == 0
        world.owners = []
        assert await world.settle_ms() == 0
        world.epochs, world.owners = [6, 6], [TWO, ONE]
        assert await world.settle_ms() == 0
        world.owners[1] = TWO
        assert HOLD_MS <= await world.settle_ms() < HOLD_MS + 10, "there was a leader meanwhile"

    virtual_time.run(scenario())


def test_no_answer_waits_for_partitions_that_lost_their_leader_after_the_question() -> None:
    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.owners[0] = THREE
        world.later(0.1, lambda: world.owners.__setitem__(1, THREE))
        world.later(0.2, lambda: world.epochs.__setitem__(0, 6))
        assert 200 <= await world.settle_ms() < 210, "it did not ask for the second"
        world.owners[0] = TWO
        assert HOLD_MS <= await world.settle_ms() < HOLD_MS + 10

    virtual_time.run(scenario())


def test_two_that_ask_at_different_times_are_answered_at_the_same() -> None:
    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.owners[0] = THREE
        first = asyncio.ensure_future(world.settle_ms())
        await asyncio.sleep(0.2)
        assert 100 <= await world.settle_ms() < 110
        assert HOLD_MS <= await first < HOLD_MS + 10

    virtual_time.run(scenario())


def test_topics_that_go_end_the_wait_and_are_forgotten() -> None:
    async def scenario() -> None:
        world = World()
        await world.settle_ms()
        world.owners[0] = THREE

        def delete() -> None:
            world.topic_by_id.clear()
            for listener in world.listeners:
                listener()

        world.later(0.1, delete)
        assert 100 <= await world.settle_ms() < 110
        assert not world.leader_changes._last

    virtual_time.run(scenario())


def test_a_limit_of_zero_is_no_wait_at_all() -> None:
    async def scenario() -> None:
        world = World()
        world.leader_changes = LeaderChangeTracker(world, world, 0)
        world.suspected.add(ONE)
        assert await world.settle_ms() == 0
        assert not world.asked

    virtual_time.run(scenario())

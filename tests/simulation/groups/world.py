"""One schedule of a consumer group (KIP-848): whole brokers, and members that come, go and die.

Brokers are those of `kafka/front_world.py`, over scripted ledgers. Beside its faults members leave
for a while, topics grow, and one is created that patterns match. `kafka/consumer_book.py` judges
what members are told; here it is seen that they come together when all is healed (H3), and that a
coordinator which reads its log knows what the one knows that wrote it (H5).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.groups.core.group_types import GroupState
from client.errors import MetadataError
from tests.simulation.groups.plan import FIRST, GROUP, LATER, SECOND, draw
from tests.simulation.kafka.connection import PORT
from tests.simulation.kafka.consumer_audit import ConsumerAudit
from tests.simulation.kafka.consumer_book import ConsumerBook, Place
from tests.simulation.kafka.consumer_member import ConsumerMember, watch
from tests.simulation.kafka.front_world import FrontWorld
from tests.simulation.machine.loop import Violation
from tests.simulation.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from broker.app import Broker
    from tests.simulation.groups.plan import GroupPlan
    from tests.simulation.kafka.consumer_member import ConsumerOptions
    from tests.simulation.machine.hosts import Host

FAULTS = ("kill", "stop", "cut from store", "cut link", "reset", "leave", "grow", "create")
_HEALED_S = 60.0
_PARTITIONS_MAX = 8


class GroupWorld(FrontWorld):
    """Everything of one schedule."""

    def __init__(self, plan: GroupPlan) -> None:
        config = BrokerConfig(
            admin_port=-1,
            listen_host="0.0.0.0",
            port=PORT,
            offsets_topic_partitions=1,
            session_timeout_ms=4_000,
            group_log_copy_bytes=plan.log_copy_bytes,
            group_consumer_session_timeout_ms=int(plan.consumer.session_s * 1000),
            group_consumer_heartbeat_interval_ms=plan.heartbeat_ms,
            group_consumer_assignment_interval_ms=plan.assignment_interval_ms,
            group_consumer_assignors=(plan.assignor,),
        )
        names = [f"member{number + 1}" for number in range(plan.members)]
        super().__init__(f"groups {plan.seed}", config, names, ledger_s=plan.ledger_s)
        self.plan = plan
        self.book = ConsumerBook(self.loop, self.count)
        self._is_calm = True
        """Whether members do what lets them come together."""
        self._audit = ConsumerAudit(self.loop, GROUP, self._brokers, self.count)
        self._running: dict[str, ConsumerMember] = {}

    def count(self, name: str) -> None:
        """Count an event."""
        self.counts[name] = self.counts.get(name, 0) + 1

    # --- processes ----------------------------------------------------------------------------

    def client_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a member's next process, or of the observer's."""
        rng = random.Random(f"groups {self.plan.seed} {host.name} {host.starts}")
        if host is self.observer:
            return watch(self.broker_names, GROUP, self.book, rng, self._places_by_topic)
        return self._member(host, rng)

    def _options(self) -> ConsumerOptions:
        """Return how members behave now."""
        return self.plan.consumer.calm() if self._is_calm else self.plan.consumer

    async def _member(self, host: Host, rng: random.Random) -> None:
        member = ConsumerMember(
            host.name,
            GROUP,
            self.broker_names,
            self.book,
            rng,
            self._options,
            self._topic_name,
            is_static=self.members.index(host) < self.plan.statics,
        )
        self._running[host.name] = member
        await member.run()
        self.later(rng.expovariate(1 / self.plan.away_s), lambda: self._return(host))
        await asyncio.Event().wait()

    def _return(self, host: Host) -> None:
        process = host.process
        if process is not None and process.alive and host.name not in self.book.tenures:
            self.loop.kill(process)
            self.start(host)

    def _brokers(self) -> list[tuple[Host, Broker]]:
        hosts = [host for host in self.brokers if host.name in self.running]
        return [(host, self.running[host.name]) for host in hosts]

    def kill(self, host: Host) -> None:
        """Kill what runs on a host; a member reads nothing any more."""
        super().kill(host)
        self.book.ends(host.name)

    # --- topics -------------------------------------------------------------------------------

    def _view(self) -> dict[str, Any]:
        views = [broker.cluster.topics for broker in self.running.values()]
        return {name: topic for view in views for name, topic in view.items()}

    def _topic_name(self, topic_id: Any) -> str | None:
        return next(
            (name for name, topic in self._view().items() if topic.topic_id == topic_id), None
        )

    def _places_by_topic(self) -> dict[str, list[Place]]:
        topics = self._view()
        return {
            name: [Place(topic.topic_id, index) for index in range(topic.partition_count)]
            for name, topic in sorted(topics.items())
            if name in (FIRST, SECOND, LATER)
        }

    def _wanted(self) -> list[Place]:
        """Return the partitions that members want."""
        wanted: set[str] = set()
        for name in self.book.tenures:
            wants = self._running[name].wants
            wanted |= {*wants.names}
            if wants.pattern:
                wanted |= {FIRST, LATER} if "[" in wants.pattern else {FIRST, SECOND, LATER}
        found = self._places_by_topic()
        return [place for name in found if name in wanted for place in found[name]]

    # --- faults -------------------------------------------------------------------------------

    def fault_choices(self) -> Sequence[Callable[[], None]]:
        """Return the faults of brokers and members, and what members and operators do."""
        more = (self._leave, self._leave, self._grow, self._create)
        return (*super().fault_choices(), *(more * self.plan.leave_weight))

    def _leave(self) -> None:
        host = self.rng.choice(self.members)
        if host.name in self.book.tenures:
            self._running[host.name].leave()

    def _grow(self) -> None:
        name = self.rng.choice((FIRST, SECOND))
        self._ask(lambda broker: broker.topics.grow(name, self._count_of(broker, name) + 1))

    def _count_of(self, broker: Any, name: str) -> int:
        return min(_PARTITIONS_MAX - 1, broker.cluster.topics[name].partition_count)

    def _create(self) -> None:
        self._ask(lambda broker: broker.topics.create(LATER, self.plan.partitions))

    def _ask(self, change: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
        """Be an operator who asks some broker for a change; who is refused does not insist."""
        host = self.rng.choice(self.brokers)
        broker, process = self.running[host.name], host.process
        if process is None or not process.alive:
            return

        async def ask() -> None:
            with contextlib.suppress(MetadataError, BrokerError, KeyError):
                await change(broker)

        process.context.run(self.loop.create_task, ask())

    # --- a schedule ---------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run the schedule."""
        plan = self.plan
        self.doing = "starting"
        await self.start_brokers()
        for name in (FIRST, SECOND):
            await self.create_topic(name, plan.partitions)
        for host in (*self.members, self.observer):
            self.boot(host)
        rng = random.Random(f"groups {plan.seed} audit")
        audit = self.loop.create_task(self._audit.run(rng))
        await self._until_together()
        self._is_calm = False
        end_s = self.loop.time() + plan.fault_s
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.expovariate(1 / plan.fault_every_s))
            self.strike()
        await asyncio.sleep(8.0)
        self.heal()
        self._is_calm = True
        await self._until_together()
        self.doing = "waiting for commits"
        before = self.counts.get("commits", 0)
        await self.until(lambda: self.counts.get("commits", 0) > before + 5, _HEALED_S)
        audit.cancel()

    async def _until_together(self) -> None:
        def is_together() -> bool:
            self.doing = f"coming together: {self.book.together(self._wanted(), len(self.members))}"
            return self.doing.endswith(" ") and self._is_stable()

        try:
            await self.until(is_together, _HEALED_S)
        except TimeoutError:
            raise Violation(f"H3: {self.doing}") from None

    def _is_stable(self) -> bool:
        found = [one.last_view.describe(GROUP) for _, one in self._audit.coordinators()]
        return any(one is not None and one.state is GroupState.STABLE for one in found)


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one schedule and return what it came to."""
    plan = draw(seed)
    world = GroupWorld(plan)
    return world.play(seed, plan.describe(), late="H3", log=world.book.log if log else None)

"""Takes over the partitions that this broker should lead, and hands them over to others.

The cluster's plan names each partition's preferred leader. For every partition whose preferred
leader is this broker, one task goes through

    claim the owner ephemeral -> take over -> lead -> close -> release

and starts over after a growing, jittered pause when a takeover is lost or leadership ends early,
for as long as the plan names this broker. When the plan names another one, the task closes its
partition gracefully and releases the ephemeral, which the next leader waits for. Safety does not
depend on any of this: fencing and the compare-and-set of the takeover decide who writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.cluster.owner_node import Owner, OwnerClaim, OwnerNode
from broker.errors import BrokerError
from broker.leadership.awaited_partitions import Key
from broker.leadership.partitions import Partitions
from broker.partition.log_services import LogServices
from broker.partition.opening import FirstSteps, Opening
from broker.partition.partition import Partition
from client import callbacks
from client.errors import LedgerError, LogCorrupt, MetadataError, SessionExpired
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.store import SessionState
from client.node import background

_LOG = logging.getLogger(__name__)

_RELEASE_S: Final = 0.5
"""For releasing the owner nodes, after the time for closing ledgers is up."""
_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 5.0
_CORRUPT_PAUSE_S: Final = 60.0
_OWNER_RETRY_S: Final = 1.0
_OPENINGS_MAX: Final = 128
"""Concurrent takeovers, which mostly wait for the metadata store and for bookies. Claims count as
well. When a cluster starts, its first broker is briefly the preferred leader of every partition:
it must not claim them all, nor be too busy to notice the other brokers."""
_REPLAYS_MAX: Final = 32
"""How many of them read back the end of their log at once: a few megabytes each."""

Observer = Callable[[Partition], None]


class ClusterPlan(Protocol):
    """The part of the cluster's view that ownership follows."""

    topics: Mapping[str, TopicInfo]

    def is_registered(self, broker: BrokerId, incarnation: str) -> bool:
        """Return whether that run of a broker's process may be alive."""
        ...

    def preferred_leader(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return which live broker should lead a partition."""
        ...

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call after any change."""
        ...


class Ownership:
    """Follows the plan for this broker."""

    def __init__(
        self,
        services: LogServices,
        cluster: ClusterPlan,
        partitions: Partitions,
        me: Owner,
        *,
        close_timeout_s: float = 10.0,
    ) -> None:
        self._services = services
        self._cluster = cluster
        self._partitions = partitions
        self._me = me
        self._close_timeout_s = close_timeout_s
        self._owned: dict[tuple[UUID, int], _PartitionOwnership] = {}
        self._missing: dict[tuple[UUID, int], str] = {}
        """Names of the planned partitions that are not led: each scrape of metrics asks."""
        self._observers: list[tuple[Observer, Observer]] = []
        self._openings = TakeoverTurns(_OPENINGS_MAX)
        self._first_steps = FirstSteps(services.ledgers)
        partitions.awaited.on_wanted = self._openings.want
        self._replays = asyncio.Semaphore(_REPLAYS_MAX)
        self._closing = False
        self._lease_task: asyncio.Task[None] | None = None

    def add_observer(self, on_opened: Observer, on_closed: Observer) -> None:
        """Report every partition whose leadership begins from now on, and its end.

        `on_closed` is called when the partition must not be used any more. If it is closed
        gracefully, earlier appends may still be confirmed.
        """
        self._observers.append((on_opened, on_closed))

    async def start(self) -> None:
        """Begin to follow the plan. Raises MetadataError."""
        self._services.store.add_session_listener(self._on_session)
        lease = self._services.lease
        await lease.ask(self._services.store)
        self._lease_task = background.keep(lambda: lease.keep(self._services.store), "lease")
        self._cluster.add_listener(self._follow_plan)
        self._follow_plan()

    async def close(self) -> None:
        """Hand over every partition gracefully. Call it while the broker is still registered.

        Other brokers begin to take over when the registration is gone; by then no ledger is left
        that they would have to fence.
        """
        self._closing = True
        self._follow_plan()
        tasks = [ownership.task for ownership in self._owned.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._close_timeout_s + _RELEASE_S)
            for task in [task for task in tasks if task in late]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await background.stop(self._lease_task)

    def missing(self) -> list[str]:
        """Return the names of partitions that this broker should lead and does not lead yet."""
        return list(self._missing.values())

    def _follow_plan(self) -> None:
        """Start a task for every partition that should be led here; end the others."""
        planned: dict[tuple[UUID, int], TopicInfo] = {}
        if not self._closing:
            for topic in self._cluster.topics.values():
                for index in range(topic.partition_count):
                    if self._cluster.preferred_leader(topic, index) == self._me.broker:
                        planned[topic.topic_id, index] = topic
        for key, ownership in self._owned.items():
            ownership.on_plan(planned.get(key))
        for key, topic in planned.items():
            if key not in self._owned:
                self._owned[key] = _PartitionOwnership(self, topic, key[1])

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._services.lease.ask_soon()
        elif state is SessionState.EXPIRED:
            self._services.lease.end()
            # A bug in one of them (FAILS-LOUDLY) must not leave the others led without a session.
            ends = [partial(one.resign, "the metadata session expired") for one in self._partitions]
            callbacks.each(callbacks.Kind.METADATA, ends)

    def _is_alive(self, owner: Owner) -> bool:
        return self._cluster.is_registered(owner.broker, owner.incarnation)

    def _note_missing(self, key: tuple[UUID, int], topic: TopicInfo | None) -> None:
        """Note whether a partition is planned here and not led."""
        if topic is not None and self._partitions.find(topic.name, key[1]) is None:
            self._missing[key] = f"{topic.name}-{key[1]}"
        else:
            self._missing.pop(key, None)

    def _on_opened(self, partition: Partition) -> None:
        self._partitions.add(partition)
        self._missing.pop((partition.topic.topic_id, partition.index), None)
        for on_opened, _ in self._observers:
            on_opened(partition)

    def _on_closed(self, partition: Partition) -> None:
        self._partitions.remove(partition)
        key = (partition.topic.topic_id, partition.index)
        if key in self._owned:
            self._note_missing(key, self._owned[key].topic)
        for _, on_closed in self._observers:
            on_closed(partition)

    def _on_vacated(self, ownership: _PartitionOwnership) -> None:
        """A task has ended; if the plan names us again by now, a new one starts."""
        if self._owned.get(ownership.key) is ownership:
            del self._owned[ownership.key]
        if ownership.topic is not None and not self._closing:
            self._follow_plan()


class _PartitionOwnership:
    """One partition that this broker should lead, or should have led; owns its task."""

    __slots__ = (
        "_first_topic",
        "_index",
        "_must_check_owner",
        "_ownership",
        "_partition",
        "_wake",
        "key",
        "task",
        "topic",
    )

    def __init__(self, ownership: Ownership, topic: TopicInfo, index: int) -> None:
        self.key = (topic.topic_id, index)
        self.topic: TopicInfo | None = topic
        """The topic as it is now; None: another broker should lead the partition."""
        self._ownership = ownership
        self._first_topic = topic
        self._index = index
        self._wake = TaskEvent()
        """Set when `topic` or the owner node has changed, or leadership has ended."""
        self._must_check_owner = False
        """Whether the owner node may have changed since it was last read."""
        self._partition: Partition | None = None
        ownership._partitions.awaited.expect(self.key)
        ownership._note_missing(self.key, topic)
        self.task = asyncio.get_running_loop().create_task(
            self._run(), name=f"ownership {topic.name}-{index}"
        )
        # Not a `finally` in the task: that would also run when tasks of a closed loop are
        # garbage-collected.
        self.task.add_done_callback(self._on_over)

    def on_plan(self, topic: TopicInfo | None) -> None:
        """Follow the plan; `topic` is None if another broker should lead the partition."""
        self.topic = topic
        self._ownership._note_missing(self.key, topic)
        if topic is None:
            self._ownership._partitions.awaited.end(self.key)
        elif self._partition is None:
            self._ownership._partitions.awaited.expect(self.key)
        if topic is not None and self._partition is not None and self._partition.topic != topic:
            self._partition.configure(topic)
        self._wake.set()

    def _is_preferred_leader(self) -> bool:
        return self.topic is not None

    async def _run(self) -> None:
        ownership = self._ownership
        topic = self._first_topic
        owner = OwnerNode(ownership._services.requests, topic, self._index, ownership._me)
        try:
            await self._hold(owner)
        except Exception:
            # A bug here must be reported, and must not affect other partitions.
            background.count_failure("ownership")
            _LOG.exception("ownership.failed topic=%s partition=%d", topic.name, self._index)
            self._end("the ownership failed")
            await self._wait(_PAUSE_MAX_S)
        await self._release(owner)

    def _on_over(self, _task: asyncio.Task[None]) -> None:
        self._end("the ownership ended")
        self._ownership._on_vacated(self)

    async def _hold(self, owner: OwnerNode) -> None:
        """Lead the partition, again after each failure, for as long as the plan names us."""
        failures = 0
        while self.topic is not None:
            partition = await self._open(owner)
            if partition is not None and not await self._lead(partition, owner):
                failures = 0
            else:
                failures += 1
                await self._pause(failures)

    def _end(self, reason: str) -> None:
        self._ownership._partitions.opening(*self.key, is_opening=False)
        self._ownership._partitions.awaited.end(self.key)
        if self._partition is not None:
            self._partition.resign(reason)
            self._partition = None

    async def _open(self, owner: OwnerNode) -> Partition | None:
        """Try to lead once, as soon as no live broker does; None: it failed or the plan changed."""
        name, index = self._first_topic.name, self._index
        list_path = paths.partition(self._first_topic.id_text, index)
        metrics = self._ownership._services.metrics
        awaited = self._ownership._partitions.awaited
        if self.topic is not None:
            awaited.expect(self.key)
        try:
            while self.topic is not None:
                self._ownership._partitions.opening(*self.key, is_opening=True)
                is_wanted = awaited.is_waited_for(self.key)
                async with self._ownership._openings.turn(self.key, is_wanted=is_wanted):
                    self._wake.clear()
                    if not self._is_preferred_leader():
                        break
                    awaited.begin(self.key)
                    claim = await owner.claim(
                        self._wake.set,
                        self._ownership._is_alive,
                        list_path,
                        self._ownership._first_steps,
                    )
                    if claim is not None:
                        return await self._take_over(self.topic or self._first_topic, claim)
                self._ownership._partitions.opening(*self.key, is_opening=False)
                await self._wake.wait()
        except LogCorrupt as error:
            _LOG.error("takeover.corrupt topic=%s partition=%d error=%s", name, index, error)
            metrics.takeovers_lost += 1
            await self._wait(_CORRUPT_PAUSE_S)
        except (BrokerError, LedgerError, MetadataError) as error:
            _LOG.warning("takeover.lost topic=%s partition=%d error=%r", name, index, error)
            metrics.takeovers_lost += 1
        return None

    async def _take_over(self, topic: TopicInfo, claim: OwnerClaim) -> Partition:
        services, replays = self._ownership._services, self._ownership._replays
        began_s = services.metrics.now_s()
        opened = await Opening(
            services, topic, self._index, self._is_preferred_leader, replays, claim
        ).run()
        services.metrics.takeover_seconds.observe(services.metrics.now_s() - began_s)
        return Partition(services, self.topic or topic, self._index, opened)

    async def _lead(self, partition: Partition, owner: OwnerNode) -> bool:
        """Lead until the plan changes or leadership ends; return whether another broker ended it.

        A broker that deletes our owner node believes that we are dead, and takes over. Without
        appends we would never notice otherwise, and would go on serving an outdated log.
        """
        ownership = self._ownership
        partition.on_ended = self._on_ended
        self._partition = partition
        ownership._partitions.opening(*self.key, is_opening=False)
        is_deposed = False
        if partition.is_open:
            ownership._on_opened(partition)
            try:
                self._must_check_owner = True
                while self.topic is not None and partition.is_open:
                    if self._must_check_owner and not await self._still_owns(owner):
                        is_deposed = True
                        partition.resign("another broker removed our owner node")
                        break
                    await self._wake.wait()
                    self._wake.clear()
            finally:
                ownership._on_closed(partition)
        await partition.close(ownership._close_timeout_s)
        self._partition = None
        return is_deposed

    def _on_ended(self) -> None:
        self._ownership._note_missing(self.key, self.topic)
        self._wake.set()

    async def _still_owns(self, owner: OwnerNode) -> bool:
        """Read the owner node and watch it; without an answer, assume so and read again later."""
        self._must_check_owner = False
        try:
            return await owner.is_ours(self._check_owner)
        except MetadataError as error:
            _LOG.info("owner.not_read path=%s error=%r", owner.path, error)
            asyncio.get_running_loop().call_later(_OWNER_RETRY_S, self._check_owner)
            return True

    def _check_owner(self) -> None:
        self._must_check_owner = True
        self._wake.set()

    async def _release(self, owner: OwnerNode) -> None:
        """Release the owner node, with retries: other brokers wait for it while we are alive."""
        while True:
            try:
                await owner.release()
            except SessionExpired:
                return
            except MetadataError as error:
                _LOG.warning("owner.not_released path=%s error=%r", owner.path, error)
                await asyncio.sleep(_PAUSE_MIN_S)
            else:
                return

    async def _pause(self, failures: int) -> None:
        """Wait longer after each failure, with jitter, so that competing brokers diverge."""
        longest = min(_PAUSE_MAX_S, _PAUSE_MIN_S * 2 ** min(failures, 16))
        await self._wait(longest * (0.5 + self._ownership._services.rng.random() / 2))

    async def _wait(self, seconds: float) -> None:
        """Wait, but only while the plan names us."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + seconds
        while self.topic is not None and loop.time() < deadline_s:
            self._wake.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._wake.wait()
            except TimeoutError:
                return


class TakeoverTurns:
    """Which takeovers are in progress at a time, and which of the others begin next.

    Those that a request waits for begin before the others: when a broker has thousands of
    partitions to open, clients that are there already wait for the ones that they use, and not for
    all. Both kinds begin in the order in which they came.
    """

    def __init__(self, count_max: int) -> None:
        """`count_max`: so many takeovers are in progress at most."""
        self._free = count_max
        self._wanted: dict[Key, asyncio.Future[None]] = {}
        """Those that requests wait for."""
        self._others: dict[Key, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, key: Key, *, is_wanted: bool) -> AsyncIterator[None]:
        """Wait for the turn of a partition's takeover, which lasts until the context is left.

        `is_wanted`: whether a request waits for it.
        """
        if self._free:
            self._free -= 1
        else:
            await self._stand_in_line(self._wanted if is_wanted else self._others, key)
        try:
            yield
        finally:
            self._pass_on()

    def want(self, key: Key) -> None:
        """A request waits for a partition now: if its takeover has not begun, it is brought
        forward."""
        turn = self._others.pop(key, None)
        if turn is not None:
            self._wanted[key] = turn

    async def _stand_in_line(self, line: dict[Key, asyncio.Future[None]], key: Key) -> None:
        turn = line[key] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has become our turn in the meantime
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """A turn is over: the next one begins."""
        for line in (self._wanted, self._others):
            while line:
                turn = line.pop(next(iter(line)))
                if not turn.done():  # else its task was cancelled
                    turn.set_result(None)
                    return
        self._free += 1


class TaskEvent:
    """An event that one task waits for.

    `asyncio.Event` serves any number of waiting tasks, and keeps an empty deque for them: 0.8 KB,
    in each partition that is led.
    """

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Let the task go on, now or when it waits next; until `clear`."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """From now on waiting lasts until the next `set`."""
        self._is_set = False

    async def wait(self) -> None:
        """Return once the event was set, at once if it is."""
        if self._is_set:
            return
        assert self._waiter is None, "two tasks wait for one event"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

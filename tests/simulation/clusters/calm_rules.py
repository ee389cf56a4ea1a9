"""What must hold in a cluster to which nothing happens, or nothing but slowness.

When all is quiet, a leader that is named takes what is produced (T17), and brokers hold no bytes
but those of open requests (T21). Where all is only slow, no leader changes (T18), and every batch
is answered in its time (T19). A background task ends with its node, whatever happens (T20).
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from client.wire.kafka.apis import ApiKey
from tests.simulation.kafka.guide import SILENCE_S, TOPIC

if TYPE_CHECKING:
    from broker.app import Broker
    from broker.partition.partition import Partition
    from client.ledger.client import LedgerClient
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.kafka.connection import KafkaLink

_ANSWER_S_MAX = 8.0
"""Longest that a producer waits for an answer where everything is slow: its timeout and those of
whoever holds the broker's bytes before it."""
_TAILS_MAX = 10
"""How many times its mean a long operation of a disk takes at most, in all schedules there are."""
_STEADY_LOOKS = 10
_STEADY_S_MAX = 15.0
_CHANGES_BYTES = 8 * 1024
"""What the changes of a schedule's operators may hold that they have given up: a few at a time."""
_BUSY_CODES = (0, 7, 19)
"""What a busy leader may answer to a batch: stored, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS."""
_TIMED_OUT, _NO_ROOM = 7, 19


class CalmRules:
    """Judges the brokers of one schedule."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._oracle = world.oracle
        self.is_only_slow = False
        """Whether everything is up and in place, and nothing happens to it but slowness."""

    # ---------------------------------------------------------------- where all is quiet

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing fails, and nothing takes its time. Disks count, too: where an operation
        may outlast a request, two bookies of three may fail their leader (seed 3562)."""
        common, store = self._world.plan.common, self._world.plan.common.store
        longest_s = _TAILS_MAX * common.disk.tail_s if common.disk.tail_p else 0.0
        return not (
            longest_s > common.request_timeout_s
            or common.fault_every_s
            or common.ambush_p
            or common.net.tail_p
            or store.tail_p
            or store.lose_request_p
            or store.lose_reply_p
            or store.lose_read_p
            or store.lag
        )

    def check_named(self, host: str, leader: str, epoch: int) -> None:
        """A broker named a leader; when all is quiet, that is one who has opened the partition."""
        if epoch >= 0:
            self._oracle.count("leaders named")
        elif self._is_quiet:
            self._oracle.fail("T17", f"{host} named {leader}, who has not opened the partition")

    def check_refused(self, host: str, index: int) -> None:
        """A broker does not lead a partition; when all is quiet, nor does its plan want it to."""
        broker = self._world.running(host)
        topic = None if broker is None else broker.cluster.topics.get(TOPIC)
        if broker is None or topic is None or not self._is_quiet:
            return
        if broker.cluster.preferred_leader(topic, index) == broker.config.node_id:
            self._oracle.fail("T17", f"{host} refused a batch for partition {index}: it is to lead")

    def judge_memory(self, broker: Broker, client: LedgerClient) -> None:
        """T21: or else a broker that loses count reads nothing more in the end."""
        connections = broker.server._connections
        open_bytes = sum(connection._wire.in_flight_bytes for connection in connections)
        held, reading = broker.server.in_flight_bytes, broker.services.reading.taken
        slots = [slot for connection in connections for slot in connection._wire.slots]
        if any(slot.api_key == ApiKey.FETCH and not slot.done for slot in slots):
            reading = 0  # a consumer goes on, and reads just now
        # A Produce waits for a leader as long as it may, though its client has gone meanwhile.
        open_bytes += broker.services.partitions.awaited.held_bytes
        entries = [e for w in client._writers for e in w._pipeline._memory._entries.values()]
        open_bytes += sum(entry.size for entry in entries if entry.unanswered or entry.is_pending)
        # Commits of offsets gather while the entry before them is under way.
        open_bytes += sum(_unsent_bytes(partition) for partition in broker.services.partitions)
        # An operator's change is finished, though its client has given it up.
        open_bytes += _CHANGES_BYTES if self._world.operators is not None else 0
        if held > open_bytes or reading:
            self._oracle.fail("T21", f"{held} bytes are held, {open_bytes} open, {reading} read")

    def check_tasks(self) -> None:
        """See that no background task of a broker has ended."""
        for host in self._world.brokers:
            broker = self._world.running(host.name)
            if broker is None or not broker.is_started or not host.running:
                continue
            tasks = [getattr(part, "_task", None) for part in broker._background]
            for task in [*tasks, broker._ownership._lease_task, broker.groups._sweeper]:
                if task is not None and task.done():
                    self._oracle.fail("T20", f"{host.name}: {task.get_name()} has ended")

    # ---------------------------------------------------------------- where all is only slow

    async def answered(self, link: KafkaLink, index: int) -> tuple[int, int]:
        """Wait for the answer to a producer's oldest batch: (error code, base offset).

        Raises OSError, IncompleteReadError, TimeoutError.
        """
        if not self.is_only_slow:
            code, base = await link.produced(SILENCE_S)
        else:
            try:
                code, base = await link.produced(_ANSWER_S_MAX)
            except TimeoutError:
                timeout_ms = self._world.produce_timeout_ms
                self._oracle.fail(
                    "T19", f"{link.host}: a batch with {timeout_ms} ms has no answer for so long"
                )
                raise
        if code == _TIMED_OUT:
            self._oracle.count("appends timed out")
        elif code == _NO_ROOM:
            self._oracle.count("batches without room")
        if code not in _BUSY_CODES:
            self.refused(link.host, index, code)
        return code, base

    def refused(self, host: str, index: int, code: int) -> None:
        """A broker answered a client that knows the leader with an error."""
        if self._world.secured is not None:
            self._world.secured.book.refused(f"a client of {host}", code)
        if self.is_only_slow:
            self._oracle.fail("T18", f"{host} was busy, and answers {code} for partition {index}")

    async def until_steady(self) -> None:
        """Wait until every partition has been with the leader that is wanted for a while."""
        looks, before = 0, None
        start_s = self._world.loop.time()
        while looks < _STEADY_LOOKS:
            if self._world.loop.time() > start_s + _STEADY_S_MAX:
                self._oracle.fail("T18", "nothing happens to the cluster, and no leader stays")
            await asyncio.sleep(0.05)
            now = [self._led_epoch(index) for index in range(self._world.plan.partitions)]
            looks = looks + 1 if now == before and None not in now else 0
            before = now
        self.is_only_slow = True

    def _led_epoch(self, index: int) -> int | None:
        """Return the epoch of a partition whose leader is the wanted one, in everybody's view."""
        running = [self._world.running(host.name) for host in self._world.brokers]
        for broker in running:
            if broker is None or not broker.is_started or TOPIC not in broker.cluster.topics:
                return None
        found = []
        for broker in running:
            assert broker is not None
            topic = broker.cluster.topics[TOPIC]
            if len(broker.cluster.brokers) < len(running) or broker.partitions.opening_count:
                return None
            if broker.cluster.preferred_leader(topic, index) == broker.config.node_id:
                found.append(broker.partitions.find(TOPIC, index))
        return found[0].leader_epoch if len(found) == 1 and found[0] is not None else None


def _unsent_bytes(partition: Partition) -> int:
    """Return the bytes that a partition has accepted, and that no writer has."""
    queue = partition._leader.log.queue
    sent = islice(queue._entries or (), queue.sent_count)
    return partition.usage.in_flight_bytes - sum(entry.size for entry in sent)

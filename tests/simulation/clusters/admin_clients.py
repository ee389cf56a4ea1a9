"""Operators of administered schedules: change topics, settings and rights at all brokers at once.

Each asks some broker, on a new connection for each request, and asks once: what is not answered has
an unknown outcome. What they ask for and what they are told goes to the book.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.wire_client import WireClient
from tests.simulation.clusters import admin_requests as ask
from tests.simulation.clusters.admin_book import NEVER, AdminBook
from tests.simulation.clusters.admin_load import NAMES, AdminOptions
from tests.simulation.kafka.connection import PORT, Refused
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine

    from tests.simulation.clusters.admin_requests import Request
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.machine.hosts import Host

SILENCE_S = 2.0
_TROUBLE = (OSError, asyncio.IncompleteReadError, TimeoutError, Refused)
_USERS = ("u0", "u1")
_PARTITIONS_MAX = 3
_RECORDS_MAX = 20
"""So many each operator appends: they have to be read at the end."""
_TOPIC_SETTINGS = ("retention.ms", "segment.ms", "delete.retention.ms")
_EXISTS = 36
_ATTEMPTS = 7
_CHANGE_S = 0.02
"""About as long as a change takes."""
STEPS = {
    "_replace": 4, "_create": 2, "_delete": 1, "_grow": 2, "_configure_topic": 3, "_assign": 1,
    "_configure_brokers": 1, "_allow": 3, "_revoke": 3, "_password": 2, "_limit": 2,
    "_produce": 3, "_commit": 3, "_forget": 1,
}  # fmt: skip
"""What an operator may do, and how much more often than something else."""


async def call(host: str, key: int, version: int, fields: dict[str, Any]) -> Any:
    """Ask a broker. Raises OSError, IncompleteReadError, TimeoutError."""
    async with asyncio.timeout(SILENCE_S):
        client = await WireClient.connect(PORT, host)
        try:
            client.send(key, version, **fields)
            return await client.receive(SILENCE_S)
        finally:
            await client.close()


class AdminClients:
    """All operators of a schedule."""

    def __init__(self, world: ClusterWorld, book: AdminBook, options: AdminOptions) -> None:
        self.book = book
        self.options = options
        self.world = world
        self._hosts: list[Host] = []
        self.acked: dict[tuple[str, int], int] = {}
        """(topic id, partition) -> where what was acknowledged ends."""
        self.left: dict[str, int] = {}
        """Host -> changes that it still has to make."""
        self.busy: dict[str, int] = {}
        self._number = 0

    def assign(self, host: Host) -> None:
        """Decide that an operator is on a host."""
        self._hosts.append(host)
        self.left[host.name] = self.options.changes_max

    def runs_on(self, host: Host) -> bool:
        """Whether one of them is on a host."""
        return host in self._hosts

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a host's next process."""
        return Operator(self, host).run()

    def number(self) -> int:
        """Return a number that nothing else has."""
        self._number += 1
        return self._number


class Operator:
    """One process of an operator."""

    def __init__(self, shared: AdminClients, host: Host) -> None:
        self._shared = shared
        self._world = shared.world
        self._book = shared.book
        self._name = host.name
        self._group = f"g-{host.name}"
        self._rng: random.Random = self._world.fork_rng(f"operator {host.name} {host.starts}")
        self._records = 0

    async def run(self) -> None:
        """Make changes until the world is healed."""
        shared = self._shared
        await self._world.work.topic_exists.wait()
        while not self._world.healed and shared.left[self._name] > 0:
            shared.left[self._name] -= 1
            await asyncio.sleep(self._rng.expovariate(1 / shared.options.every_s))
            if shared.options.steps:
                step = self._rng.choice(shared.options.steps)
            else:
                (step,) = self._rng.choices(list(STEPS), list(STEPS.values()))
            with contextlib.suppress(*_TROUBLE):
                await getattr(self, step)()
        await self._world.loop.create_future()

    def _any_host(self) -> str:
        return self._rng.choice(self._world.brokers).name

    async def _ask(self, request: Request, host: str = "") -> Any:
        """Ask some broker for a change; return its answer, None: it did not take place, or nobody
        knows."""
        if self._rng.random() < self._shared.options.disturb_p:
            # Whom it asks, or another, which may have to do with it.
            self._world.disturb(self._rng.choice(self._world.brokers), _CHANGE_S)
        self._book.begin(request.change)
        self._world.oracle.note("%s asks for: %s", self._name, request.change.what)
        answer = await call(host or self._any_host(), request.key, request.version, request.fields)
        code = request.code(answer)
        self._world.oracle.note("%s: %s: %d", self._name, request.change.what, code)
        self._book.answered(request.change, code)
        return None if code else answer

    # ---------------------------------------------------------------- topics

    async def _create(self) -> None:
        """Make a topic, if there seems to be none. Raises Refused."""
        name = self._rng.choice(NAMES)
        if not self._id_of(name) or self._rng.random() < 0.1:
            await self._create_at(name, self._any_host())

    async def _create_at(self, name: str, host: str) -> str:
        ensemble_size, copies, acks = self._world.plan.quorums
        configs = {"min.insync.replicas": str(acks), "quire.ensemble.size": str(ensemble_size)}
        number, partitions = self._shared.number(), self._rng.choice((1, 1, 2))
        answer = await self._ask(ask.create(name, number, partitions, copies, configs), host)
        if answer is None:
            raise Refused(_EXISTS, "create")
        return str(answer.topics[0].topic_id)

    async def _replace(self) -> None:
        """Delete a topic, make it anew at once through another broker, and use it."""
        name = self._rng.choice(NAMES)
        topic_id = self._id_of(name)
        if topic_id:
            task = self._world.loop.create_task(self._delete_quietly(topic_id))
            if self._rng.random() < 0.5:
                await task
        for attempt in range(_ATTEMPTS):
            with contextlib.suppress(*_TROUBLE):
                made = await self._create_at(name, self._any_host())
                self._world.oracle.count("topics made anew")
                await self._produce_to(made, 0)
                await self._commit_for(made, 0)
                return
            await asyncio.sleep(0.01 * 2**attempt)

    async def _turn_over(self) -> None:
        """Delete a topic, make it anew, and delete that one by its name, each through another
        broker."""
        name = self._rng.choice(NAMES)
        topic_id = self._id_of(name)
        if topic_id:
            await self._ask(ask.delete_id(topic_id))
        await self._create_at(name, self._any_host())
        await self._ask(ask.delete_name(name))

    async def _delete(self) -> None:
        name = self._rng.choice(NAMES)
        topic_id = self._id_of(name)
        if topic_id and self._rng.random() < 0.7:
            await self._ask(ask.delete_id(topic_id))
        else:
            await self._ask(ask.delete_name(name))

    async def _delete_quietly(self, topic_id: str) -> None:
        with contextlib.suppress(*_TROUBLE):
            await self._ask(ask.delete_id(topic_id))

    def _id_of(self, name: str) -> str:
        """Return the id of a topic, as operators know it who have just asked; empty: none."""
        found = [key for key, topic in self._book.living.items() if topic.name == name]
        return found[0] if found else ""

    def _count_of(self, name: str) -> int:
        return int(self._book.nodes.get(ask.topic_path(name), {}).get("partition_count", 0))

    async def _grow(self) -> None:
        name = self._rng.choice(NAMES)
        if 0 < self._count_of(name) < _PARTITIONS_MAX:
            await self._ask(ask.grow(name, self._count_of(name) + 1))

    async def _configure_topic(self) -> None:
        setting = self._rng.choice(_TOPIC_SETTINGS)
        number = None if self._rng.random() < 0.2 else self._shared.number()
        await self._ask(ask.configure_topic(self._rng.choice(NAMES), setting, number))

    async def _assign(self) -> None:
        brokers = list(range(1, len(self._world.brokers) + 1))
        self._rng.shuffle(brokers)
        await self._ask(ask.assign(self._rng.choice(NAMES), 0, brokers))

    # ---------------------------------------------------------------- settings and rights

    async def _configure_brokers(self) -> None:
        number = None if self._rng.random() < 0.4 else self._shared.number()
        await self._ask(ask.configure_brokers(number))

    async def _allow(self) -> None:
        is_denial = self._rng.random() < 0.5
        topic, number = self._rng.choice(NAMES), self._shared.number()
        await self._ask(ask.allow(topic, number, is_denial=is_denial))

    async def _revoke(self) -> None:
        topic = self._rng.choice(NAMES)
        path = ask.acl_path(topic)
        keys = [key for key in self._book.nodes.get(path, {}) if key.startswith("acls/")]
        is_one = keys and self._rng.random() < 0.6
        request = ask.revoke(topic, self._rng.choice(keys) if is_one else None)
        answer = await self._ask(request)
        if answer is not None:
            for row in answer.filter_results[0].matching_acls:
                permission = "DENY" if row.permission_type == 2 else "ALLOW"
                fact = (path, ask.acl_key(row.principal, permission))
                self._book.was_removed(request.change, fact)

    async def _password(self) -> None:
        number = None if self._rng.random() < 0.4 else self._shared.number()
        await self._ask(ask.set_password(self._rng.choice(_USERS), number))

    async def _limit(self) -> None:
        number = None if self._rng.random() < 0.4 else self._shared.number()
        await self._ask(ask.limit(self._rng.choice(_USERS), number))

    # ---------------------------------------------------------------- records and offsets

    def _some_partition(self) -> tuple[str, int]:
        """Return a topic that is there, and one of its partitions. Raises Refused."""
        living = [key for key, topic in self._book.living.items() if topic.name in NAMES]
        if not living:
            raise Refused(3, "no topic")
        topic_id = self._rng.choice(living)
        count = self._count_of(self._book.living[topic_id].name)
        return topic_id, self._rng.randrange(max(1, count))

    async def _produce(self) -> None:
        await self._produce_to(*self._some_partition())

    async def _produce_to(self, topic_id: str, index: int) -> None:
        """Append a record to a topic, by its id. Raises OSError, TimeoutError, Refused."""
        self._records += 1
        if self._records > _RECORDS_MAX:
            return
        host = await leader_of(self._world, self._any_host(), topic_id, index)
        fields = {"transactional_id": None, "transaction_timeout": 1000}
        answer = await call(self._any_host(), ApiKey.INIT_PRODUCER_ID, 1, fields)
        if answer.error_code:
            raise Refused(answer.error_code, "init producer")
        value = b"%s:%d" % (self._name.encode(), self._shared.number())
        batch = build_batch(
            [Record(None, value, SimClock.EPOCH_MS)],
            producer_id=answer.producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        rows = [{"index": index, "records": batch}]
        fields = {
            "transactional_id": None, "acks": -1, "timeout": 1_500,
            "topic_data": [{"topic_id": UUID(topic_id), "partition_data": rows}],
        }  # fmt: skip
        answer = await call(host, ApiKey.PRODUCE, 13, fields)
        row = answer.responses[0].partition_responses[0]
        if row.error_code == 0 and self._book.is_there(topic_id):
            book = self._world.oracle.partition_of(topic_id, index)
            self._world.oracle.acknowledged(book, row.base_offset, [value])
            self._world.oracle.count("admin: records acknowledged")
            ends = self._shared.acked
            ends[topic_id, index] = max(ends.get((topic_id, index), 0), row.base_offset + 1)

    async def _commit(self) -> None:
        await self._commit_for(*self._some_partition())

    async def _commit_for(self, topic_id: str, index: int) -> None:
        """Commit an offset of a topic, by its id. Raises OSError, TimeoutError, Refused."""
        host = await coordinator_of(self._any_host(), self._group)
        offset, key = self._shared.number(), (self._group, topic_id, index)
        row = {
            "partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": None,
        }  # fmt: skip
        fields = {
            "group_id": self._group, "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"topic_id": UUID(topic_id), "partitions": [row]}],
        }  # fmt: skip
        self._book.committing(key, offset)
        answer = await call(host, ApiKey.OFFSET_COMMIT, 10, fields)
        self._book.committed(key, offset, answer.topics[0].partitions[0].error_code)

    async def _forget(self) -> None:
        """Delete the group, or its offset of one partition."""
        host = await coordinator_of(self._any_host(), self._group)
        if self._rng.random() < 0.5:
            keys = [key for key in self._book.commits if key[0] == self._group]
            self._resetting(keys)
            answer = await call(host, ApiKey.DELETE_GROUPS, 2, {"groups_names": [self._group]})
            code = answer.results[0].error_code
        else:
            topic_id, index = self._some_partition()
            keys = [(self._group, topic_id, index)]
            self._resetting(keys)
            topic = {
                "name": self._book.living[topic_id].name,
                "partitions": [{"partition_index": index}],
            }
            fields = {"group_id": self._group, "topics": [topic]}
            answer = await call(host, ApiKey.OFFSET_DELETE, 0, fields)
            code = answer.error_code or answer.topics[0].partitions[0].error_code
            if not self._book.is_there(topic_id):
                return  # it may have been about another topic of that name
        for key in keys:
            self._book.committed(key, NEVER, code)

    def _resetting(self, keys: list[tuple[str, str, int]]) -> None:
        for key in keys:
            self._book.committing(key, NEVER)


async def leader_of(world: ClusterWorld, host: str, topic_id: str, index: int) -> str:
    """Ask a broker who leads a partition. Raises Refused, OSError, TimeoutError."""
    fields = {"topics": [{"topic_id": UUID(topic_id), "name": None}]}
    answer = await call(host, ApiKey.METADATA, 12, fields)
    (topic,) = answer.topics
    for row in topic.partitions:
        if row.partition_index == index and row.leader_id >= 1:
            return world.broker_host(row.leader_id)
    raise Refused(5, "no leader")


async def coordinator_of(host: str, group: str) -> str:
    """Ask a broker who coordinates a group. Raises Refused, OSError, TimeoutError."""
    fields = {"key_type": 0, "coordinator_keys": [group]}
    answer = await call(host, ApiKey.FIND_COORDINATOR, 4, fields)
    (found,) = answer.coordinators
    if found.error_code:
        raise Refused(found.error_code, "no coordinator")
    return str(found.host)

"""Operators beside the load: topics that are deleted, made anew at once and changed, and rights.

Each operator has a topic of its own. It deletes it by its id through one broker, which is at times
stopped 2 to 120 ms after the request, has another broker make it anew under the same name, and
uses it; then the first broker goes on. It adds partitions, changes a setting, and adds and removes
access control entries of a resource that all operators share.

The check reads the metadata store after a sync, which faults do not reach: what was acknowledged
must be there, and nothing else but what has an unknown outcome. At the end, when all is healed,
every broker must show it, and records and offsets of the topics that are there must be read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from client.errors import MetadataError, NoNode
from client.metadata import paths
from client.metadata.zookeeper import ZooKeeperStore
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.chaos.cluster import ChaosCluster, Member
from tests.chaos.judges.checkers import Anomaly
from tests.fakes.wire_client import WireClient

OPERATORS: Final = 3
RIGHTS: Final = "operated"
"""The topic that the access control entries are about; there is none."""
_ANSWER_S: Final = 8.0
_PAUSE_S: Final = 0.2
_STOP_AFTER_S: Final = (0.002, 0.120)
_STOPPED_S: Final = (0.1, 1.5)
_STOPPED_P: Final = 0.7
_SETTLED_S: Final = 0.5
"""How long a broker that was stopped has for what it had begun, before the check."""
_PATIENCE_S: Final = 60.0
_PARTITIONS_MAX: Final = 3
_ENTRIES_MAX: Final = 12
_NOT_DONE: Final = (3, 36, 37, 40, 42, 100)
"""Codes that say that nothing was changed."""
_TROUBLE: Final = (OSError, asyncio.IncompleteReadError, TimeoutError, MetadataError)
_SETTING: Final = "segment.ms"
_FIRST_SETTING: Final = 10**12


class Wrong(Exception):
    """Something that must not be."""


@dataclass(slots=True)
class Kept:
    """A topic of an operator, as it must be."""

    name: str
    topic_id: str = ""
    """Empty: it is not known to be there."""
    counts: set[int] = field(default_factory=set)
    """How many partitions it may have."""
    settings: set[str | None] = field(default_factory=set)
    """What its setting may be."""
    end: int = 0
    """Of the records that were acknowledged in its first partition."""
    offsets: set[int] = field(default_factory=set)
    """What may be committed."""


class Rights:
    """The entries that all operators change."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        """Principals that must have one."""
        self.unknown: set[str] = set()
        """Those of whom nobody knows."""

    def compare(self, before: set[str], found: set[str]) -> str:
        """Say what is wrong with the entries found, read since `before` was kept; empty: nothing"""
        missing = (before & self.kept) - found
        extra = found - before - self.kept - self.unknown
        return f"missing {sorted(missing)}, too many {sorted(extra)}" if missing or extra else ""


class Administration:
    """All operators, in a thread of their own."""

    def __init__(self, cluster: ChaosCluster, seed: int, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"administration {seed}")
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._topics = [Kept(f"operated-{i}") for i in range(OPERATORS)]
        self._rights = Rights()
        self._number = 0
        self._made: dict[str, str] = {}
        """Name -> id of the topic that the last answer to a creation was about; empty: none."""
        self.anomalies: list[Anomaly] = []
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Begin nothing more, and stop no broker."""
        self._over.set()

    def finish(self) -> list[Anomaly]:
        """All is healed: see that everything is there, and return what is wrong."""
        self.stop()
        if not self.anomalies:
            asyncio.run(self._judge())
        return self.anomalies

    def stop(self) -> None:
        """End it, and wait for that. May be called again."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:  # of ours: whoever waits for the verdict must hear of it
            self.anomalies.append(Anomaly("administration", f"it has ended by {error!r}"))
            raise

    async def _run(self) -> None:
        store = ZooKeeperStore(self._cluster.zookeeper)
        await store.start()
        try:
            await asyncio.gather(*(self._operate(store, topic) for topic in self._topics))
        finally:
            await store.close()

    async def _operate(self, store: ZooKeeperStore, topic: Kept) -> None:
        while not self._over.is_set() and not self.anomalies:
            try:
                await self._replace(store, topic)
                if not topic.topic_id:
                    continue  # it is over
                for step in (self._append, self._commit, self._grow, self._configure, self._right):
                    await step(topic)
                await asyncio.sleep(_SETTLED_S)
                await self._check(store, topic)
            except Wrong as wrong:
                self._say(f"      ADMINISTRATION {wrong}")
                self.anomalies.append(Anomaly("administration", str(wrong)))
            except _TROUBLE:
                self.counts["troubled"] += 1
                await asyncio.sleep(_PAUSE_S)

    # ---------------------------------------------------------------- requests

    def _any(self) -> Member:
        return self._rng.choice(self._cluster.brokers)

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _call(self, member: Member, key: int, version: int, **fields: Any) -> Any:
        """Ask a broker. Raises OSError, IncompleteReadError, TimeoutError."""
        async with asyncio.timeout(_ANSWER_S):
            near = member.link.near
            client = await WireClient.connect(near.port, near.host)
            try:
                client.send(key, version, **fields)
                return await client.receive(_ANSWER_S)
            finally:
                await client.close()

    async def _attempt(self, what: str, work: Awaitable[int]) -> int | None:
        """Return the code that was answered; None: nobody knows what came of it."""
        try:
            code = await work
        except _TROUBLE:
            self.counts[f"{what}: unanswered"] += 1
            return None
        self.counts[what if code == 0 else f"{what}: refused or unknown"] += 1
        return code if code == 0 or code in _NOT_DONE else None

    async def _replace(self, store: ZooKeeperStore, topic: Kept) -> None:
        """Delete the topic through one broker, and make it anew through others at once."""
        first = self._any()
        old, tasks = topic.topic_id, []
        if old:
            topic.topic_id = ""
            tasks = [
                asyncio.ensure_future(self._delete(first, old)),
                asyncio.ensure_future(self._stop_for_a_moment(first)),
            ]
        others = [member for member in self._cluster.brokers if member is not first]
        code: int | None = None
        for attempt in range(1_000):
            number = self._next()
            member = self._rng.choice(others)
            code = await self._attempt("create", self._create(member, topic.name, number))
            found = await self._stored(store, topic.name) if code != 0 else None
            if code == 0 or (found is not None and found["topic_id"] != old):
                break
            if old and attempt % 5 == 4:  # the first one may never have heard of it
                await self._delete(self._rng.choice(others), old)
            if self._over.is_set():
                break
            await asyncio.sleep(0.01 * min(attempt, 30))
        await asyncio.gather(*tasks)
        found = await self._stored(store, topic.name)
        if found is None:
            if not self._over.is_set():
                raise Wrong(f"topic {topic.name} was made anew, and is gone; before it was {old}")
            return
        if found["topic_id"] == old:
            if not self._over.is_set():
                raise Wrong(f"topic {topic.name} has the id of the one that was deleted: {old}")
            return
        if code == 0 and found["topic_id"] != self._made[topic.name]:
            raise Wrong(f"topic {topic.name} was made as {self._made[topic.name]}, is {found}")
        topic.topic_id = found["topic_id"]
        topic.counts = {found["partition_count"]}
        topic.settings = {found["configs"].get(_SETTING)}
        topic.end, topic.offsets = 0, {-1}
        self.counts["made anew"] += bool(old)

    async def _create(self, member: Member, name: str, number: int) -> int:
        topic = {
            "name": name, "num_partitions": 1, "replication_factor": 3, "assignments": [],
            "configs": [{"name": "retention.ms", "value": str(_FIRST_SETTING + number)}],
        }  # fmt: skip
        answer = await self._call(member, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=5_000)
        (made,) = answer.topics
        self._made[name] = "" if made.error_code else str(made.topic_id)
        return int(made.error_code)

    async def _delete(self, member: Member, topic_id: str) -> None:
        async def delete() -> int:
            topics = [{"name": None, "topic_id": UUID(topic_id)}]
            answer = await self._call(member, ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=5_000)
            return int(answer.responses[0].error_code)

        await self._attempt("delete", delete())

    async def _stop_for_a_moment(self, member: Member) -> None:
        """Stop a broker shortly after a request has left for it, and let it go on."""
        await asyncio.sleep(self._rng.uniform(*_STOP_AFTER_S))
        is_free = member.node.is_running and not member.node.is_paused
        if is_free and not self._over.is_set() and self._rng.random() < _STOPPED_P:
            member.node.pause()
            self.counts["stopped in a deletion"] += 1
            await asyncio.sleep(self._rng.uniform(*_STOPPED_S))
            member.node.resume()

    async def _grow(self, topic: Kept) -> None:
        wanted = max(topic.counts) + 1
        if wanted > _PARTITIONS_MAX:
            return
        before = set(topic.counts)
        topic.counts.add(wanted)

        async def grow() -> int:
            row = {"name": topic.name, "count": wanted, "assignments": None}
            answer = await self._call(
                self._any(), ApiKey.CREATE_PARTITIONS, 3, topics=[row], timeout=5_000
            )
            return int(answer.results[0].error_code)

        code = await self._attempt("grow", grow())
        if code is not None:
            topic.counts = {wanted} if code == 0 else before

    async def _configure(self, topic: Kept) -> None:
        value = str(_FIRST_SETTING + self._next())
        before = set(topic.settings)
        topic.settings.add(value)

        async def configure() -> int:
            row = {"name": _SETTING, "config_operation": 0, "value": value}
            resource = {"resource_type": 2, "resource_name": topic.name, "configs": [row]}
            answer = await self._call(
                self._any(), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]
            )
            return int(answer.responses[0].error_code)

        code = await self._attempt("configure", configure())
        if code == 0:
            # One that nobody has answered may come later still.
            topic.settings = {value, *(before if len(before) > 1 else ())}
        elif code is not None:
            topic.settings = before

    async def _right(self, topic: Kept) -> None:
        """Give somebody a right or a denial, or take one that is known to be there."""
        del topic
        rights = self._rights
        if rights.kept and (len(rights.kept) > _ENTRIES_MAX or self._rng.random() < 0.5):
            who = self._rng.choice(sorted(rights.kept))
            rights.kept.discard(who)
            rights.unknown.add(who)
            if await self._attempt("revoke", self._revoke(who)) == 0:
                rights.unknown.discard(who)
            return
        who = f"User:p{self._next()}"
        rights.unknown.add(who)
        code = await self._attempt("allow", self._allow(who))
        if code is not None:
            rights.unknown.discard(who)
            if code == 0:
                rights.kept.add(who)

    async def _allow(self, who: str) -> int:
        creation = {
            "resource_type": 2, "resource_name": RIGHTS, "resource_pattern_type": 3,
            "principal": who, "host": "*", "operation": 3,
            "permission_type": self._rng.choice((2, 3)),
        }  # fmt: skip
        answer = await self._call(self._any(), ApiKey.CREATE_ACLS, 3, creations=[creation])
        return int(answer.results[0].error_code)

    async def _revoke(self, who: str) -> int:
        wanted = {
            "resource_type_filter": 2, "resource_name_filter": RIGHTS, "pattern_type_filter": 3,
            "principal_filter": who, "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        answer = await self._call(self._any(), ApiKey.DELETE_ACLS, 3, filters=[wanted])
        (result,) = answer.filter_results
        if result.error_code == 0 and not result.matching_acls:
            return 7  # that broker has not heard of it yet
        return int(result.error_code)

    # ---------------------------------------------------------------- records and offsets

    async def _append(self, topic: Kept) -> None:
        """Append a record to the first partition, by the topic's id."""
        leader = await self._leader(self._any(), topic.topic_id)
        batch = build_batch([Record(None, b"%d" % self._next(), int(time.time() * 1000))])
        rows = [{"index": 0, "records": batch}]
        answer = await self._call(
            leader, ApiKey.PRODUCE, 13, transactional_id=None, acks=-1, timeout=5_000,
            topic_data=[{"topic_id": UUID(topic.topic_id), "partition_data": rows}],
        )  # fmt: skip
        row = answer.responses[0].partition_responses[0]
        if row.error_code == 0:
            topic.end = max(topic.end, row.base_offset + 1)
            self.counts["appended"] += 1

    async def _leader(self, member: Member, topic_id: str) -> Member:
        asked = [{"topic_id": UUID(topic_id), "name": None}]
        answer = await self._call(member, ApiKey.METADATA, 12, topics=asked)
        for row in answer.topics[0].partitions:
            if row.partition_index == 0 and row.leader_id >= 0:
                return self._cluster.brokers[row.leader_id]
        raise TimeoutError("no leader")

    async def _coordinator(self, topic: Kept) -> Member:
        answer = await self._call(
            self._any(), ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[topic.name]
        )
        (found,) = answer.coordinators
        if found.error_code:
            raise TimeoutError("no coordinator")
        return self._cluster.brokers[found.node_id]

    async def _commit(self, topic: Kept) -> None:
        """Commit an offset of the first partition, by the topic's id."""
        member, offset = await self._coordinator(topic), self._next()
        topic.offsets.add(offset)
        row = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": None,
        }  # fmt: skip
        answer = await self._call(
            member, ApiKey.OFFSET_COMMIT, 10, group_id=topic.name,
            generation_id_or_member_epoch=-1, member_id="",
            topics=[{"topic_id": UUID(topic.topic_id), "partitions": [row]}],
        )  # fmt: skip
        if answer.topics[0].partitions[0].error_code == 0:
            topic.offsets = {offset}
            self.counts["committed"] += 1

    # ---------------------------------------------------------------- checks

    async def _stored(self, store: ZooKeeperStore, name: str) -> dict[str, Any] | None:
        """Return a topic's node as it is now. Raises MetadataError."""
        path = paths.topic(name)
        await store.sync(path)
        try:
            found: dict[str, Any] = json.loads((await store.get(path)).data)
        except NoNode:
            return None
        return found

    async def _check(self, store: ZooKeeperStore, topic: Kept) -> None:
        """Compare what the store holds. Raises Wrong, MetadataError."""
        if topic.topic_id:
            found = await self._stored(store, topic.name)
            if found is None or found["topic_id"] != topic.topic_id:
                now = None if found is None else found["topic_id"]
                raise Wrong(f"topic {topic.name} {topic.topic_id} is lost, there is {now}")
            if found["partition_count"] not in topic.counts:
                raise Wrong(f"{topic.name} has not {topic.counts} partitions: {found}")
            if found["configs"].get(_SETTING) not in topic.settings:
                raise Wrong(f"{_SETTING} of {topic.name} is not {topic.settings}: {found}")
        before = set(self._rights.kept)
        who = await self._stored_rights(store)
        if wrong := self._rights.compare(before, who):
            raise Wrong(f"entries about {RIGHTS}: {wrong}")
        self.counts["checks"] += 1

    async def _stored_rights(self, store: ZooKeeperStore) -> set[str]:
        node = hashlib.sha256(f"TOPIC/LITERAL/{RIGHTS}".encode()).hexdigest()
        path = f"{paths.ACLS}/{node}"
        await store.sync(path)
        try:
            return {row[0] for row in json.loads((await store.get(path)).data)["acls"]}
        except NoNode:
            return set()

    async def _judge(self) -> None:
        """Check for the last time, and see that brokers show it all."""
        store = ZooKeeperStore(self._cluster.zookeeper)
        await store.start()
        try:
            for topic in self._topics:
                await self._check(store, topic)
                if not topic.topic_id:
                    continue
                for member in self._cluster.brokers:
                    await self._until(lambda t=topic, m=member: self._shown(m, t), topic)
                await self._until(lambda t=topic: self._read(t), topic)
                await self._until(lambda t=topic: self._fetched(t), topic)
        except Wrong as wrong:
            self.anomalies.append(Anomaly("administration", str(wrong)))
        finally:
            await store.close()

    async def _until(self, look: Callable[[], Awaitable[str]], topic: Kept) -> None:
        """Look until nothing is wrong. Raises Wrong: there still is after a while."""
        wrong = ""
        for _ in range(int(_PATIENCE_S / _PAUSE_S)):
            try:
                wrong = await look()
            except _TROUBLE as error:
                wrong = repr(error)
            if not wrong:
                return
            await asyncio.sleep(_PAUSE_S)
        raise Wrong(f"after healing, {topic}: {wrong}")

    async def _shown(self, member: Member, topic: Kept) -> str:
        asked = [{"topic_id": None, "name": topic.name}]
        answer = await self._call(member, ApiKey.METADATA, 12, topics=asked)
        (found,) = answer.topics
        is_right = str(found.topic_id) == topic.topic_id and len(found.partitions) in topic.counts
        return "" if is_right else f"{member.node.name} shows {found}"

    async def _read(self, topic: Kept) -> str:
        leader = await self._leader(self._any(), topic.topic_id)
        row = {
            "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0,
            "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        }  # fmt: skip
        answer = await self._call(
            leader, ApiKey.FETCH, 13, replica_id=-1, max_wait=100, min_bytes=1,
            max_bytes=1 << 20, session_epoch=-1,
            topics=[{"topic_id": UUID(topic.topic_id), "partitions": [row]}],
        )  # fmt: skip
        found = answer.responses[0].partitions[0]
        if found.error_code or found.high_watermark < topic.end:
            return f"error {found.error_code}, {found.high_watermark} of {topic.end} records"
        return "" if found.records or not topic.end else "no records"

    async def _fetched(self, topic: Kept) -> str:
        topics = [{"topic_id": UUID(topic.topic_id), "partition_indexes": [0]}]
        group = {
            "group_id": topic.name, "member_id": None, "member_epoch": -1, "topics": topics,
        }  # fmt: skip
        answer = await self._call(
            await self._coordinator(topic), ApiKey.OFFSET_FETCH, 10, groups=[group]
        )
        (found,) = answer.groups
        row = None if found.error_code else found.topics[0].partitions[0]
        if row is None or row.error_code:
            return f"offsets: error {found.error_code if row is None else row.error_code}"
        is_right = row.committed_offset in topic.offsets
        return "" if is_right else f"committed is {row.committed_offset}, not {topic.offsets}"

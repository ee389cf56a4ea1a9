"""Ask the brokers for topics, leaders, offsets and sizes, and store offsets of groups.

Every call is answered, or fails within `fetch.timeoutMs` and says why; when leaders move or brokers
die meanwhile, others are asked. Fetch and Produce have files of their own (`read/broker_fetch.py`,
`write/task_producer.py`), which use the connections of this one.

One object serves a process for as long as it lives: Spark keeps Python workers between tasks, so
the next task finds its connections open (`shared`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode as Code

from client.pubsub.addresses import parse
from client.pubsub.brokers import Brokers
from client.spark.brokers.kafka_link import KafkaLink, LinkBroken
from client.spark.brokers.retries import Transient, check_code, retry
from client.spark.splits import TopicPartition
from client.wire.kafka.apis import ApiKey

T = TypeVar("T")

LATEST: Final = -1
EARLIEST: Final = -2
NO_OFFSET: Final = -1
NO_LEADER: Final = -1

_METADATA_AT_MOST: Final = 12
_LIST_OFFSETS_AT_MOST: Final = 7
_DESCRIBE_LOG_DIRS_AT_MOST: Final = 4
_DESCRIBE_CONFIGS_AT_MOST: Final = 4
_BROKER_RESOURCE: Final = 4
_FIND_COORDINATOR_AT_MOST: Final = 3
_OFFSET_COMMIT_AT_MOST: Final = 8
_KINDS: Final = ("group", "transactional id")
_NO_GENERATION: Final = -1
_CONNECT_TIMEOUT_S: Final = 5.0
_BROKERS_ASKED: Final = 3


class PartitionLeader(NamedTuple):
    """Who leads a partition; -1 while nobody does."""

    broker_id: int
    epoch: int


class TopicFacts(NamedTuple):
    """What the brokers say about a topic."""

    topic_id: str
    """UUID as text; empty from brokers that know no topic ids."""
    internal: bool
    leaders: Mapping[int, PartitionLeader]
    """By partition, in order."""


class KafkaCluster:
    """The brokers behind one `kafka.bootstrap.servers`. Not for use by several threads."""

    def __init__(self, bootstrap_servers: str | Brokers, timeout_ms: int) -> None:
        """Connects to nothing yet. Raises ConfigError for addresses that are none."""
        brokers = Brokers.of(bootstrap_servers)
        self._bootstrap = parse(brokers.bootstrap_servers)
        self._brokers = brokers
        self.timeout_s = timeout_ms / 1000
        self.ask_timeout_s = self.timeout_s / _BROKERS_ASKED
        """For one answer: a broker that hangs must leave time to ask others."""
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[str, int], KafkaLink] = {}
        self._leaders: dict[TopicPartition, PartitionLeader] = {}

    def close(self) -> None:
        """Close all connections; the object can be used again."""
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicFacts]:
        """Describe topics, or all of them for None; those that do not exist are left out.

        Raises RequestRefused, BrokersUnreachable.
        """
        asked = None if names is None else [{"topic_id": None, "name": name} for name in names]
        return self.retry(
            f"asking {self._brokers.bootstrap_servers} for topics", lambda: self._topics(asked)
        )

    def offsets(
        self, asked: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return offsets by timestamp: LATEST, EARLIEST or milliseconds since the epoch.

        For a time, the first offset that is not older, or NO_OFFSET. LATEST is the end of what
        the isolation level shows. Partitions that do not exist are left out. Raises
        RequestRefused, BrokersUnreachable.
        """
        found: dict[TopicPartition, int] = {}
        missing = dict(asked)

        def attempt() -> dict[TopicPartition, int]:
            for leader, wanted in self._by_leader(missing).items():
                link = self.link(leader)
                for at, offset in self._list_offsets(link, wanted, read_committed).items():
                    found[at] = offset
                    del missing[at]
            for at in [at for at in missing if at not in self._leaders]:
                del missing[at]  # metadata has just been asked: it does not exist
            if missing:
                raise Transient(f"no leader of {next(iter(missing))} answers")
            return found

        return self.retry("asking for offsets", attempt) if asked else {}

    def sizes(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the bytes of each partition's log, as far as brokers tell; asked once."""
        wanted = set(topics)
        by_leader: dict[int, dict[str, list[int]]] = {}
        for at in sorted(at for at in self._leaders if at.topic in wanted):
            leader = self._leaders[at].broker_id
            if leader != NO_LEADER:
                rows = by_leader.setdefault(leader, {})
                rows.setdefault(at.topic, []).append(at.partition)
        found: dict[TopicPartition, int] = {}
        for leader, rows in by_leader.items():
            with contextlib.suppress(LinkBroken):
                found.update(self._sizes(self.link(leader), rows))
        return found

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets for a group that has no members. Raises RequestRefused when it has."""

        def attempt() -> None:
            self._commit(group, offsets)

        self.retry(f"committing offsets of group {group}", attempt)

    def setting(self, name: str) -> str:
        """Return a setting of one of the brokers; empty: it has none of that name.

        Raises RequestRefused, BrokersUnreachable.
        """
        return self.retry(f"asking a broker for {name}", lambda: self._setting(name))

    def leader(self, at: TopicPartition) -> PartitionLeader:
        """Return a partition's leader as far as known; ask `topics` to know."""
        return self._leaders.get(at, PartitionLeader(NO_LEADER, -1))

    def link(self, broker_id: int) -> KafkaLink:
        """Return a connection to a broker that metadata named. Raises LinkBroken."""
        address = self._addresses.get(broker_id)
        if address is None:
            raise LinkBroken(f"broker {broker_id} is not known")
        return self._link(address)

    def coordinator(self, key: str, kind: int) -> KafkaLink:
        """Return a connection to who coordinates a group (kind 0) or a transactional id (1).

        Raises LinkBroken, Transient, RequestRefused.
        """
        anyone = self._any_link()
        version = anyone.version(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_AT_MOST)
        fields: dict[str, Any] = {"key": key, "key_type": kind}
        found = anyone.ask(ApiKey.FIND_COORDINATOR, fields, self.ask_timeout_s, version=version)
        check_code(found.error_code, f"finding the coordinator of {_KINDS[kind]} {key}")
        return self._link((found.host, int(found.port)))

    def every_link(self) -> list[KafkaLink]:
        """Return a connection to every broker. Raises LinkBroken."""
        if not self._addresses:
            self._topics([])
        return [self._link(address) for address in self._addresses.values()]

    def drop(self, link: KafkaLink) -> None:
        """Forget a connection that broke or was left in the middle of an answer."""
        link.close()
        self._links = {key: kept for key, kept in self._links.items() if kept is not link}

    def retry(self, what: str, attempt: Callable[[], T]) -> T:
        """Try until `fetch.timeoutMs` is over; leaders are looked up anew after each failure."""
        first = True

        def with_fresh_leaders() -> T:
            nonlocal first
            if not first and self._leaders:
                names = sorted({at.topic for at in self._leaders})
                self._topics([{"topic_id": None, "name": name} for name in names])
            first = False
            try:
                return attempt()
            except LinkBroken:
                self.close()
                raise

        return retry(what, with_fresh_leaders, self.timeout_s)

    def _link(self, address: tuple[str, int]) -> KafkaLink:
        link = self._links.get(address)
        if link is None:
            timeout_s = min(self.ask_timeout_s, _CONNECT_TIMEOUT_S)
            link = KafkaLink(*address, timeout_s, self._brokers.security)
            self._links[address] = link
        return link

    def _any_link(self) -> KafkaLink:
        """Return any connection, an open one if there is one. Raises LinkBroken."""
        if self._links:
            return next(iter(self._links.values()))
        failures = []
        for address in dict.fromkeys([*self._bootstrap, *self._addresses.values()]):
            try:
                return self._link(address)
            except LinkBroken as error:
                failures.append(str(error))
        raise LinkBroken("; ".join(failures))

    def _topics(self, asked: list[dict[str, Any]] | None) -> dict[str, TopicFacts]:
        link = self._any_link()
        version = link.version(ApiKey.METADATA, _METADATA_AT_MOST)
        fields = {
            "topics": asked,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = link.ask(ApiKey.METADATA, fields, self.ask_timeout_s, version=version)
        self._addresses = {int(b.node_id): (b.host, int(b.port)) for b in answer.brokers}
        found: dict[str, TopicFacts] = {}
        for topic in answer.topics:
            for at in [at for at in self._leaders if at.topic == topic.name]:
                del self._leaders[at]
            if topic.error_code == Code.unknown_topic_or_partition:
                continue
            check_code(topic.error_code, f"describing topic {topic.name}")
            rows = sorted(topic.partitions, key=lambda row: int(row.partition_index))
            leaders = {
                int(row.partition_index): PartitionLeader(
                    int(row.leader_id), int(getattr(row, "leader_epoch", -1))
                )
                for row in rows
            }
            topic_id: uuid.UUID | None = getattr(topic, "topic_id", None)
            found[topic.name] = TopicFacts(
                str(topic_id) if topic_id else "", bool(topic.is_internal), leaders
            )
            for index, leader in leaders.items():
                self._leaders[TopicPartition(topic.name, index)] = leader
        return found

    def _by_leader(
        self, asked: Mapping[TopicPartition, int]
    ) -> dict[int, dict[TopicPartition, int]]:
        unknown = sorted({at.topic for at in asked if at not in self._leaders})
        if unknown:
            self._topics([{"topic_id": None, "name": name} for name in unknown])
        grouped: dict[int, dict[TopicPartition, int]] = {}
        for at in sorted(asked):
            leader = self.leader(at).broker_id
            if leader != NO_LEADER:
                grouped.setdefault(leader, {})[at] = asked[at]
        return grouped

    def _list_offsets(
        self, link: KafkaLink, asked: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int]:
        """Ask one leader; partitions it does not lead (any more) are left out."""
        rows: dict[str, list[dict[str, int]]] = {}
        for at, timestamp in asked.items():
            rows.setdefault(at.topic, []).append(
                {
                    "partition_index": at.partition,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp,
                }
            )
        fields = {
            "replica_id": -1,
            "isolation_level": int(read_committed),
            "topics": [{"name": name, "partitions": rows[name]} for name in rows],
        }
        version = link.version(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_AT_MOST)
        answer = link.ask(ApiKey.LIST_OFFSETS, fields, self.ask_timeout_s, version=version)
        found: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                at = TopicPartition(topic.name, int(row.partition_index))
                try:
                    check_code(row.error_code, f"asking for offsets of {at}")
                except Transient:
                    continue
                found[at] = int(row.offset)
        return found

    def _sizes(self, link: KafkaLink, rows: Mapping[str, list[int]]) -> dict[TopicPartition, int]:
        fields = {"topics": [{"topic": name, "partitions": rows[name]} for name in rows]}
        version = link.version(ApiKey.DESCRIBE_LOG_DIRS, _DESCRIBE_LOG_DIRS_AT_MOST)
        answer = link.ask(ApiKey.DESCRIBE_LOG_DIRS, fields, self.ask_timeout_s, version=version)
        return {
            TopicPartition(topic.name, int(row.partition_index)): int(row.partition_size)
            for directory in answer.results
            for topic in directory.topics
            for row in topic.partitions
        }

    def _setting(self, name: str) -> str:
        self._topics([])
        broker_id = min(self._addresses, default=NO_LEADER)
        link = self.link(broker_id)
        resource = {
            "resource_type": _BROKER_RESOURCE,
            "resource_name": str(broker_id),
            "configuration_keys": [name],
        }
        fields = {
            "resources": [resource],
            "include_synonyms": False,
            "include_documentation": False,
        }
        version = link.version(ApiKey.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_AT_MOST)
        answer = link.ask(ApiKey.DESCRIBE_CONFIGS, fields, self.ask_timeout_s, version=version)
        (found,) = answer.results
        check_code(found.error_code, f"asking broker {broker_id} for {name}")
        return next((row.value or "" for row in found.configs if row.name == name), "")

    def _commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        link = self.coordinator(group, 0)
        rows: dict[str, list[dict[str, Any]]] = {}
        for at, offset in sorted(offsets.items()):
            rows.setdefault(at.topic, []).append(
                {
                    "partition_index": at.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        fields: dict[str, Any] = {
            "group_id": group,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": rows[name]} for name in rows],
        }
        version = link.version(ApiKey.OFFSET_COMMIT, _OFFSET_COMMIT_AT_MOST)
        answer = link.ask(ApiKey.OFFSET_COMMIT, fields, self.ask_timeout_s, version=version)
        for topic in answer.topics:
            for row in topic.partitions:
                check_code(row.error_code, f"committing offsets of group {group}")


_shared: dict[tuple[Brokers, int], KafkaCluster] = {}


def shared(bootstrap_servers: str | Brokers, timeout_ms: int) -> KafkaCluster:
    """Return this process's object for these brokers; connections stay open between tasks."""
    brokers = Brokers.of(bootstrap_servers)
    key = (brokers, timeout_ms)
    if key not in _shared:
        _shared[key] = KafkaCluster(brokers, timeout_ms)
    return _shared[key]

"""Create, list, describe and delete topics.

This file is the only home of topic administration for applications, over aiokafka's admin
client. What it adds: results as plain values, errors that name the topic, offsets beside the
metadata, and the topic is usable when `create` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, NoError, for_code

from client.pubsub.addresses import BOOTSTRAP_SERVERS, parse, why_unreachable
from client.pubsub.errors import BrokerUnreachable, PubSubError, TopicNotFound, translate

CLUSTER_DEFAULT: Final = -1
"""Partition count or replication factor that leaves the choice to the brokers."""

_NO_LEADER: Final = -1
_POLL_S: Final = 0.05
_OFFSETS_TIMEOUT_S: Final = 10.0
_READY_TIMEOUT_S: Final = 30.0


class TopicListing(NamedTuple):
    """One row of the topic list."""

    name: str
    partition_count: int
    internal: bool


class PartitionDescription(NamedTuple):
    """One partition: who leads it and which offsets it holds."""

    partition: int
    leader: int | None
    """Broker id; None while a new leader is being elected."""
    replicas: Sequence[int]
    log_start_offset: int | None
    """None while there is no leader to ask."""
    log_end_offset: int | None

    @property
    def record_count(self) -> int | None:
        """Return how many offsets the partition holds now."""
        if self.log_start_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.log_start_offset


class TopicDescription(NamedTuple):
    """A topic, its partitions in order, and its settings where the broker tells them."""

    name: str
    internal: bool
    partitions: list[PartitionDescription]
    configs: Mapping[str, str]
    """Settings that differ from the default; empty if the broker cannot tell."""


class TopicAdmin:
    """Administers topics. Use it as an async context manager.

        async with TopicAdmin("localhost:9092") as topics:
            await topics.create("greetings", partition_count=3)

    No call creates a topic by looking at it.
    """

    def __init__(
        self, bootstrap_servers: str = BOOTSTRAP_SERVERS, *, request_timeout_ms: int = 30_000
    ) -> None:
        """Raises ConfigError if `bootstrap_servers` is not `host:port[,host:port...]`."""
        parse(bootstrap_servers)
        self._bootstrap_servers = bootstrap_servers
        self._request_timeout_ms = request_timeout_ms
        self._admin: AIOKafkaAdminClient | None = None

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachable."""
        admin = AIOKafkaAdminClient(
            bootstrap_servers=self._bootstrap_servers,
            client_id="quire-admin",
            request_timeout_ms=self._request_timeout_ms,
        )
        try:
            await admin.start()
        except KafkaError as error:
            await admin.close()
            raise BrokerUnreachable(await why_unreachable(self._bootstrap_servers)) from error
        self._admin = admin

    async def close(self) -> None:
        """Disconnect."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def create(
        self,
        name: str,
        *,
        partition_count: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and return when every partition has a leader.

        Raises TopicExists, InvalidTopic, and BrokerUnreachable if the topic was created but has
        no leaders after 30 s.
        """
        topic = NewTopic(name, 1, 1, topic_configs=dict(configs or {}))
        # Set afterwards: the constructor mistakes -1, the protocol's default, for an omission.
        topic.num_partitions = partition_count
        topic.replication_factor = replication_factor
        doing = f"creating topic {name} failed"
        response = await self._call(doing, self._running().create_topics([topic]))
        _check(doing, response.topic_errors)
        await self._wait_for_leaders(name)

    async def delete(self, name: str) -> None:
        """Delete a topic and all its records. Raises TopicNotFound."""
        doing = f"deleting topic {name} failed"
        response = await self._call(doing, self._running().delete_topics([name]))
        _check(doing, response.topic_error_codes)

    async def listings(self) -> list[TopicListing]:
        """Return all topics, sorted by name; internal ones carry a mark."""
        topics = await self._metadata()
        return sorted(
            TopicListing(topic["topic"], len(topic["partitions"]), bool(topic["is_internal"]))
            for topic in topics
        )

    async def describe(self, name: str) -> TopicDescription:
        """Return one topic with its offsets. Never creates it. Raises TopicNotFound."""
        topic = next((t for t in await self._metadata() if t["topic"] == name), None)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name}")
        leaders = {p["partition"]: p["leader"] for p in topic["partitions"]}
        led = [TopicPartition(name, index) for index in leaders if leaders[index] != _NO_LEADER]
        starts, ends = await self._offsets(led)
        partitions = []
        for partition in sorted(topic["partitions"], key=lambda p: int(p["partition"])):
            tp = TopicPartition(name, partition["partition"])
            leader = None if partition["leader"] == _NO_LEADER else partition["leader"]
            partitions.append(
                PartitionDescription(
                    tp.partition, leader, partition["replicas"], starts.get(tp), ends.get(tp)
                )
            )
        configs = await self._configs(name)
        return TopicDescription(name, bool(topic["is_internal"]), partitions, configs)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _running(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            raise PubSubError("the admin client is not started: use `async with TopicAdmin(...)`")
        return self._admin

    async def _call(self, doing: str, request: Any) -> Any:
        try:
            return await request
        except KafkaError as error:
            raise translate(error, doing) from error
        except TimeoutError as error:
            raise BrokerUnreachable(f"{doing}: the broker did not answer in time") from error

    async def _metadata(self) -> list[dict[str, Any]]:
        # All topics, because asking for one by name would create it.
        topics = await self._call("listing topics failed", self._running().describe_topics())
        return [topic for topic in topics if topic["error_code"] == NoError.errno]

    async def _wait_for_leaders(self, name: str) -> None:
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._poll_for_leaders(name)
        except TimeoutError as error:
            raise BrokerUnreachable(f"topic {name} is created, but has no leaders yet") from error

    async def _poll_for_leaders(self, name: str) -> None:
        while True:
            for topic in await self._metadata():
                leaders = [partition["leader"] for partition in topic["partitions"]]
                if topic["topic"] == name and _NO_LEADER not in leaders:
                    return
            await asyncio.sleep(_POLL_S)

    async def _offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        if not partitions:
            return {}, {}
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap_servers)
        try:
            async with asyncio.timeout(_OFFSETS_TIMEOUT_S):
                await consumer.start()
                starts = await consumer.beginning_offsets(partitions)
                return starts, await consumer.end_offsets(partitions)
        except (KafkaError, TimeoutError):
            return {}, {}
        finally:
            await consumer.stop()

    async def _configs(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        try:
            responses = await self._running().describe_configs([resource])
        except IncompatibleBrokerVersion:
            return {}
        except KafkaError as error:
            raise translate(error, f"describing topic {name} failed") from error
        configs = {}
        for response in responses:
            for described in response.to_object()["resources"]:
                for entry in described["config_entries"]:
                    if not _is_default(entry):
                        configs[entry["config_names"]] = str(entry["config_value"])
        return dict(sorted(configs.items()))


_TOPIC_CONFIG_SOURCE: Final = 1


def _is_default(entry: Mapping[str, Any]) -> bool:
    if "config_source" in entry:
        return bool(entry["config_source"] != _TOPIC_CONFIG_SOURCE)
    return bool(entry["is_default"])


def _check(doing: str, results: Sequence[Sequence[Any]]) -> None:
    """Raise for the first topic that has an error code; a third field is the broker's text."""
    for result in results:
        error = for_code(result[1])
        if error is not NoError:
            text = result[2] if len(result) > 2 and result[2] else ""
            raise translate(error(text) if text else error(), doing)

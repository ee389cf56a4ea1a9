"""Create, list, describe and delete topics.

It uses aiokafka's client and request types. (Its admin client asks one random broker, dead or
alive, and creates a topic by asking for it.) What it promises:

- results are plain values, errors name the topic, offsets stand beside the metadata;
- when `create` or `delete` returns, every live broker knows about it, so that a program that
  asks next, wherever it connects, sees the same;
- looking at a topic never creates it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    NoError,
    RequestTimedOutError,
    for_code,
)
from aiokafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from aiokafka.protocol.metadata import MetadataRequest

from client.pubsub.addresses import BOOTSTRAP_SERVERS
from client.pubsub.brokers import Brokers
from client.pubsub.errors import (
    BrokerUnreachable,
    PubSubError,
    RequestFailed,
    TopicNotFound,
    check_topic_name,
    translate,
)

CLUSTER_DEFAULT: Final = -1
"""Partition count or replication factor that leaves the choice to the brokers."""

_NO_LEADER: Final = -1
_POLL_S: Final = 0.05
_OFFSETS_TIMEOUT_S: Final = 10.0
_READY_TIMEOUT_S: Final = 30.0
_TOPIC_RESOURCE: Final = 2

_Topic = dict[str, Any]
"""A topic as a Metadata response describes it."""


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

    All calls raise BrokerUnreachable when no broker answers.
    """

    def __init__(
        self,
        bootstrap_servers: str | Brokers = BOOTSTRAP_SERVERS,
        *,
        request_timeout_ms: int = 30_000,
    ) -> None:
        """Raises ConfigError if `bootstrap_servers` is not `host:port[,host:port...]`."""
        self._cluster = Brokers.of(bootstrap_servers)
        self._request_timeout_ms = request_timeout_ms
        self._client: AIOKafkaClient | None = None

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachable."""
        client = AIOKafkaClient(
            **self._cluster.settings(),
            client_id="quire-admin",
            request_timeout_ms=self._request_timeout_ms,
        )
        try:
            await client.bootstrap()
        except KafkaError as error:
            await client.close()
            raise BrokerUnreachable(await self._cluster.why_unreachable()) from error
        self._client = client

    async def close(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def create(
        self,
        name: str,
        *,
        partition_count: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and return when every partition has a leader, for every broker.

        Raises TopicExists, InvalidTopic, and BrokerUnreachable if the topic was created but has
        no leaders after 30 s.
        """
        doing = f"creating topic {name} failed"
        settings = list((configs or {}).items())
        request = CreateTopicsRequest(
            [(name, partition_count, replication_factor, [], settings)],
            self._request_timeout_ms,
            False,
        )
        response = await self._ask_any(doing, request)
        _check(doing, response.topic_errors)

        def is_ready(topic: _Topic | None) -> bool:
            leaders = [partition["leader"] for partition in topic["partitions"]] if topic else []
            return bool(leaders) and _NO_LEADER not in leaders

        await self._everywhere(name, is_ready, f"topic {name} is created, but has no leaders yet")

    async def delete(self, name: str) -> None:
        """Delete a topic and all its records. Raises TopicNotFound."""
        doing = f"deleting topic {name} failed"
        response = await self._ask_any(doing, DeleteTopicsRequest([name], self._request_timeout_ms))
        _check(doing, response.topic_error_codes)
        await self._everywhere(
            name, lambda topic: topic is None, f"topic {name} is deleted, but still shown"
        )

    async def listings(self) -> list[TopicListing]:
        """Return all topics, sorted by name; internal ones carry a mark."""
        topics = await self._metadata("listing topics failed", None)
        return sorted(
            TopicListing(topic["topic"], len(topic["partitions"]), bool(topic["is_internal"]))
            for topic in topics
        )

    async def describe(self, name: str) -> TopicDescription:
        """Return one topic with its offsets. Raises TopicNotFound, InvalidTopic."""
        check_topic_name(name)
        topics = await self._metadata(f"describing topic {name} failed", [name])
        if not topics:
            raise TopicNotFound(f"there is no topic {name}")
        topic = topics[0]
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

    def _running(self) -> AIOKafkaClient:
        if self._client is None:
            raise PubSubError("the admin client is not started: use `async with TopicAdmin(...)`")
        return self._client

    def _brokers(self) -> list[int | str]:
        return sorted(broker.nodeId for broker in self._running().cluster.brokers())

    async def _ask(self, doing: str, broker: int | str, request: Any) -> Any:
        try:
            return await self._running().send(broker, request)
        except NodeNotReadyError:
            raise
        except (RequestTimedOutError, TimeoutError) as error:
            raise BrokerUnreachable(f"{doing}: the broker did not answer in time") from error
        except KafkaError as error:
            raise translate(error, doing) from error

    async def _ask_any(self, doing: str, request: Any) -> Any:
        """Ask the first broker that can be connected; a request that was sent is not repeated."""
        for broker in self._brokers():
            try:
                return await self._ask(doing, broker, request)
            except NodeNotReadyError:
                continue
        reason = await self._cluster.why_unreachable()
        raise BrokerUnreachable(f"{doing}: {reason}")

    async def _metadata(self, doing: str, names: list[str] | None) -> list[_Topic]:
        request = MetadataRequest(names, allow_auto_topic_creation=False)
        response = await self._ask_any(doing, request)
        self._running().cluster.update_metadata(response)
        return _known_topics(response)

    async def _everywhere(
        self, name: str, is_so: Callable[[_Topic | None], bool], otherwise: str
    ) -> None:
        """Wait until every live broker shows the topic as `is_so` wants it."""
        await self._metadata(otherwise, [])
        waiting = self._brokers()
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                while waiting:
                    waiting = [b for b in waiting if not await self._shows(b, name, is_so)]
                    await asyncio.sleep(_POLL_S if waiting else 0)
        except TimeoutError as error:
            raise BrokerUnreachable(otherwise) from error

    async def _shows(
        self, broker: int | str, name: str, is_so: Callable[[_Topic | None], bool]
    ) -> bool:
        request = MetadataRequest([name], allow_auto_topic_creation=False)
        try:
            response = await self._ask(f"looking at topic {name} failed", broker, request)
        except (NodeNotReadyError, BrokerUnreachable):
            return True  # it died: when it comes back it reads what is true then
        topics = _known_topics(response)
        return is_so(topics[0] if topics else None)

    async def _offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        if not partitions:
            return {}, {}
        consumer = AIOKafkaConsumer(**self._cluster.settings())
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
        request = DescribeConfigsRequest([(_TOPIC_RESOURCE, name, None)])
        try:
            response = await self._ask_any(f"describing topic {name} failed", request)
        except RequestFailed as error:
            if isinstance(error.__cause__, IncompatibleBrokerVersion):
                return {}
            raise
        configs = {}
        for described in response.to_object()["resources"]:
            for entry in described["config_entries"]:
                if not _is_default(entry):
                    configs[entry["config_names"]] = str(entry["config_value"])
        return dict(sorted(configs.items()))


def _known_topics(response: Any) -> list[_Topic]:
    topics: list[_Topic] = response.to_object()["topics"]
    return [topic for topic in topics if topic["error_code"] == NoError.errno]


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

"""/brokers/{id}/partitions and /topics: what one broker knows about the partitions it leads.

Only leaders know offsets and sizes. Lists of the whole cluster are put together from these views,
one from each broker (`of_topics`, `of_partitions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.admin.context import AdminContext, at_broker
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, page
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.schema import Schema, page_of, record, ref, text, whole
from broker.cluster.core.topology import TopicInfo
from broker.partition.partition import Partition
from client.ids import BrokerId

COUNTS: Final = {
    "log_start_offset": whole("First offset that can be read."),
    "high_watermark": whole("Offset after the last confirmed record."),
    "last_stable_offset": whole("Bound of read_committed reads."),
    "log_end_offset": whole("Offset after the last accepted record."),
    "bytes": whole("Size of the log, each record counted once."),
    "in_flight_bytes": whole("Bytes accepted and not confirmed yet."),
}
SCHEMAS: Final[Mapping[str, Schema]] = {
    "LedTopic": record(
        "What a broker leads of a topic.",
        {
            "topic": text("The topic."),
            "partitions_led": whole("Partitions of it that this broker leads."),
            "records": whole("Offsets between log start and high watermark, summed up."),
            "bytes": whole("Size of these partitions."),
            "produced": whole("High watermarks, summed up: its growth is the rate."),
        },
    ),
    "LedTopicPage": page_of(ref("LedTopic"), "Topics by name."),
    "LedPartition": record(
        "A partition that a broker leads.",
        {
            "topic": text("The topic."),
            "partition": whole("Its number."),
            "leader": whole("The broker."),
            "leader_epoch": whole("Grows with every change of leader."),
            **COUNTS,
        },
    ),
    "LedPartitionPage": page_of(ref("LedPartition"), "Partitions by topic and number."),
}


class Led(NamedTuple):
    """The same view of every broker."""

    rows: list[Mapping[str, Any]]
    silent: Mapping[BrokerId, str]
    """Brokers that could not be reached: what they lead is missing."""


def show(context: AdminContext, partition: Partition) -> dict[str, Any]:
    """Return a partition that this broker leads, as the views show it."""
    return {
        "topic": partition.topic.name,
        "partition": partition.index,
        "leader": context.me,
        "leader_epoch": partition.leader_epoch,
        "log_start_offset": partition.log_start_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_end_offset": partition.log_end_offset,
        "bytes": partition.usage.size_bytes,
        "in_flight_bytes": partition.usage.in_flight_bytes,
    }


def _led(context: AdminContext, topic: str | None) -> Iterator[Partition]:
    for partition in context.broker.partitions:
        if partition.is_open and topic in (None, partition.topic.name):
            yield partition


def _sums(topic: str, partitions: Sequence[Partition]) -> dict[str, Any]:
    produced = sum(partition.high_watermark for partition in partitions)
    return {
        "topic": topic,
        "partitions_led": len(partitions),
        "records": produced - sum(partition.log_start_offset for partition in partitions),
        "bytes": sum(partition.usage.size_bytes for partition in partitions),
        "produced": produced,
    }


def partition_key(topic: str, index: int) -> str:
    """Return what partitions are sorted by."""
    return f"{topic}/{index:010d}"


async def list_topics(context: AdminContext, request: AdminRequest) -> Answer:
    """List the topics of which this broker leads something."""
    prefix = request.query.get("prefix", "")
    led: dict[str, list[Partition]] = {}
    for partition in _led(context, None):
        if partition.topic.name.startswith(prefix):
            led.setdefault(partition.topic.name, []).append(partition)
    # Summing up takes longest, and only this page's topics need it.
    return await page(
        context.broker.services.turns,
        sorted(led),
        request.query,
        str,
        lambda name: _sums(name, led[name]),
    )


async def list_partitions(context: AdminContext, request: AdminRequest) -> Answer:
    """List the partitions that this broker leads."""

    def key(partition: Partition) -> str:
        return partition_key(partition.topic.name, partition.index)

    led = sorted(_led(context, request.query.get("topic")), key=key)
    return await page(
        context.broker.services.turns,
        led,
        request.query,
        key,
        lambda partition: show(context, partition),
    )


async def of_topics(context: AdminContext, query: Mapping[str, Any]) -> Led:
    """Return what all brokers lead of the topics on a page, one row per broker and topic."""
    mine = await list_topics(context, AdminRequest({}, query, None))
    return await _everywhere(context, "topics", query, mine)


async def of_partitions(context: AdminContext, topic: TopicInfo, after: int, limit: int) -> Led:
    """Return what all brokers lead of a topic, from the partition after `after` on."""
    query = {"topic": topic.name, "limit": limit, "after": partition_key(topic.name, after)}
    if after < 0:
        del query["after"]
    mine = await list_partitions(context, AdminRequest({}, query, None))
    return await _everywhere(context, "partitions", query, mine)


async def _everywhere(
    context: AdminContext, view: str, query: Mapping[str, Any], mine: Answer
) -> Led:
    others = await context.peer_client.ask_all(
        lambda one: f"/brokers/{one.id}/{view}", {name: str(value) for name, value in query.items()}
    )
    rows = list(mine.body["items"])
    for answer in others.answers.values():
        rows += answer["items"]
    return Led(rows, others.silent)


OPERATIONS: Final = (
    Operation(
        name="list_led_topics", role=Role.LOOK, method="GET", path="/brokers/{broker_id}/topics",
        summary="List the topics of which a broker leads partitions, with sums over these.",
        handle=list_topics, where=at_broker, problems=(404,), gives={JSON: ref("LedTopicPage")},
        query={**QUERY, "prefix": text("Only topics whose names begin with this.", maxLength=249)},
    ),
    Operation(
        name="list_led_partitions", role=Role.LOOK,
        method="GET", path="/brokers/{broker_id}/partitions",
        summary="List the partitions that a broker leads.",
        handle=list_partitions, where=at_broker, problems=(404,),
        gives={JSON: ref("LedPartitionPage")},
        query={**QUERY, "topic": text("Only partitions of this topic.", maxLength=249)},
    ),
)  # fmt: skip

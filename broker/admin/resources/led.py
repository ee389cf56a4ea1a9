"""/brokers/{id}/partitions and /topics: what one broker knows because it leads.

Leaders alone know offsets and sizes. Lists of the whole cluster are put together from these
views, one of each broker (`Led.of_topics`, `Led.of_partitions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.admin.operation import JSON, Answer, Ask, Operation
from broker.admin.pages import QUERY, page
from broker.admin.schema import Schema, page_of, record, ref, text, whole
from broker.admin.site import Site, at_broker
from broker.core.topology import TopicInfo
from broker.partition import Partition
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
    """Brokers that could not be asked: what they lead is missing."""


def show(site: Site, partition: Partition) -> dict[str, Any]:
    """Return a partition that this broker leads, as the views show it."""
    return {
        "topic": partition.topic.name,
        "partition": partition.index,
        "leader": site.me,
        "leader_epoch": partition.leader_epoch,
        "log_start_offset": partition.log_start_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_end_offset": partition.log_end_offset,
        "bytes": partition.size_bytes,
        "in_flight_bytes": partition.in_flight_bytes,
    }


def _led(site: Site, topic: str | None) -> Iterator[Partition]:
    for partition in site.broker.partitions:
        if partition.is_open and topic in (None, partition.topic.name):
            yield partition


def _sums(topic: str, partitions: Sequence[Partition]) -> dict[str, Any]:
    produced = sum(partition.high_watermark for partition in partitions)
    return {
        "topic": topic,
        "partitions_led": len(partitions),
        "records": produced - sum(partition.log_start_offset for partition in partitions),
        "bytes": sum(partition.size_bytes for partition in partitions),
        "produced": produced,
    }


def partition_key(topic: str, index: int) -> str:
    """Return what partitions are sorted by."""
    return f"{topic}/{index:010d}"


async def list_topics(site: Site, ask: Ask) -> Answer:
    """List the topics of which this broker leads something."""
    prefix = ask.query.get("prefix", "")
    led: dict[str, list[Partition]] = {}
    for partition in _led(site, None):
        if partition.topic.name.startswith(prefix):
            led.setdefault(partition.topic.name, []).append(partition)
    # Summing up takes longest, and only this page's topics need it.
    return page(sorted(led), ask.query, str, lambda name: _sums(name, led[name]))


async def list_partitions(site: Site, ask: Ask) -> Answer:
    """List the partitions that this broker leads."""

    def key(partition: Partition) -> str:
        return partition_key(partition.topic.name, partition.index)

    led = sorted(_led(site, ask.query.get("topic")), key=key)
    return page(led, ask.query, key, lambda partition: show(site, partition))


async def of_topics(site: Site, query: Mapping[str, Any]) -> Led:
    """Return what all brokers lead of the topics on a page, one row per broker and topic."""
    mine = await list_topics(site, Ask({}, query, None))
    return await _everywhere(site, "topics", query, mine)


async def of_partitions(site: Site, topic: TopicInfo, after: int, limit: int) -> Led:
    """Return what all brokers lead of a topic, from the partition after `after` on."""
    query = {"topic": topic.name, "limit": limit, "after": partition_key(topic.name, after)}
    if after < 0:
        del query["after"]
    mine = await list_partitions(site, Ask({}, query, None))
    return await _everywhere(site, "partitions", query, mine)


async def _everywhere(site: Site, view: str, query: Mapping[str, Any], mine: Answer) -> Led:
    others = await site.neighbours.ask_all(
        lambda one: f"/brokers/{one.id}/{view}", {name: str(value) for name, value in query.items()}
    )
    rows = list(mine.body["items"])
    for answer in others.answers.values():
        rows += answer["items"]
    return Led(rows, others.silent)


OPERATIONS: Final = (
    Operation(
        name="list_led_topics", method="GET", path="/brokers/{broker_id}/topics",
        summary="List the topics of which a broker leads partitions, with sums over these.",
        handle=list_topics, where=at_broker, problems=(404,), gives={JSON: ref("LedTopicPage")},
        query={**QUERY, "prefix": text("Only topics whose name starts so.", maxLength=249)},
    ),
    Operation(
        name="list_led_partitions", method="GET", path="/brokers/{broker_id}/partitions",
        summary="List the partitions that a broker leads.",
        handle=list_partitions, where=at_broker, problems=(404,),
        gives={JSON: ref("LedPartitionPage")},
        query={**QUERY, "topic": text("Only partitions of this topic.", maxLength=249)},
    ),
)  # fmt: skip

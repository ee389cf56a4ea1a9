"""Finds the leader of a produced batch, and what is wrong with it that needs no look inside."""

from __future__ import annotations

from typing import Final

from broker.errors import (
    InvalidRecord,
    InvalidTopicName,
    UnknownTopicId,
    UnsupportedCompression,
)
from broker.front.batches.produce_terms import ProduceTerms
from broker.leadership.partitions import Partitions
from broker.partition.partition import Partition
from client.wire.kafka.answer_parts import Topic
from client.wire.kafka.batches.records import CODEC_MASK, Codec

_ZSTD_FROM: Final = 7
_ATTRIBUTES_AT: Final = 22
"""Offset of the low attribute byte in a batch."""


def batch_leader(
    partitions: Partitions,
    version: int,
    terms: ProduceTerms,
    topic: Topic,
    index: int,
    records: memoryview | None,
) -> tuple[Partition, memoryview]:
    """Return who takes a batch, and the batch. Raises what can be said without looking into it."""
    name = topic if isinstance(topic, str) else terms.name(topic)
    if terms.are_checked:
        terms.check(name)
    leader = partitions.leader(name, index)
    if leader.topic.internal:
        raise InvalidTopicName(f"topic {name!r} belongs to the brokers")
    if name is not topic and leader.topic.topic_id != topic:
        raise UnknownTopicId(f"{leader.name} was deleted and created again: its id has changed")
    if not records:
        raise InvalidRecord("there is no record batch")
    if (
        version < _ZSTD_FROM
        and len(records) > _ATTRIBUTES_AT
        and records[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD
    ):
        raise UnsupportedCompression("zstd needs version 7 of Produce")
    return leader, records

"""Finds who takes a batch of a Produce request, and what is wrong with it from outside."""

from __future__ import annotations

from typing import Final

from broker.errors import (
    InvalidRecord,
    InvalidTopicName,
    UnsupportedCompression,
)
from broker.front.batches.produce_terms import ProduceTerms
from broker.leadership.partitions import Partitions
from broker.partition.partition import Partition
from client.wire.kafka.batches.records import CODEC_MASK, Codec

_ZSTD_FROM: Final = 7
_ATTRIBUTES_AT: Final = 22
"""Offset of the low attribute byte in a batch."""


def batch_leader(
    partitions: Partitions,
    version: int,
    terms: ProduceTerms,
    topic: str,
    index: int,
    records: memoryview | None,
) -> tuple[Partition, memoryview]:
    """Return who takes a batch, and the batch. Raises what can be said without looking into it."""
    terms.check(topic)
    leader = partitions.leader(topic, index)
    if leader.topic.internal:
        raise InvalidTopicName(f"topic {topic!r} belongs to the brokers")
    if not records:
        raise InvalidRecord("there is no record batch")
    if (
        version < _ZSTD_FROM
        and len(records) > _ATTRIBUTES_AT
        and records[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD
    ):
        raise UnsupportedCompression("zstd needs version 7 of Produce")
    return leader, records

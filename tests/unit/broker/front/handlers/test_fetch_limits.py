"""Which fetches wait for more: a generated table of the limits of request, partition and broker.

Each row is compared with `kafka_waits`, which counts as Kafka 4.4 does (KafkaApis, ReplicaManager,
DelayedFetch), row by row and by nothing of ours. The rows of `MEASURED` were put to Kafka 4.4.0.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import NamedTuple

import pytest

from broker.app import Broker
from broker.front.core.fetch_sessions import Asked
from broker.front.handlers.fetch import FetchRound
from broker.front.services import Call
from broker.partition import tail_cache
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.fetch import FetchRequest, PartitionFetch
from client.wire.steps import finish
from tests.fakes.group_bench import PEER
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, fetch_fields, produce


class Row(NamedTuple):
    """The limits of one request to one broker."""

    bytes_min: int
    bytes_max: int
    partition_max: int
    broker_max: int = 50_000_000


def kafka_waits(row: Row, logs: list[list[int]]) -> bool:
    """Whether Kafka waits, given the sizes of the batches of each partition asked for."""
    bytes_max = min(row.bytes_max, row.broker_max)
    bytes_min = min(row.bytes_min, bytes_max)
    left, read, needs_one = bytes_max, 0, True
    for sizes in logs:  # ReplicaManager.readFromLog, LogSegment.read: cut batches are read, too
        limit = min(row.partition_max, left)
        first = sizes[0] if sizes else 0
        size = 0 if first > limit and not needs_one else min(sum(sizes), max(limit, first))
        if first <= limit or needs_one:
            read += size
            left = max(0, left - size)
            needs_one = needs_one and not size
    there = sum(min(sum(sizes), row.partition_max) for sizes in logs)  # DelayedFetch.tryComplete
    return read < bytes_min and there < bytes_min


def decided(broker: Broker, row: Row, count: int) -> FetchRound:
    """Look once, as a fetch of the first partitions of `t` does."""
    asked = [Asked("t", PartitionFetch(at, 0, row.partition_max, -1)) for at in range(count)]
    request = FetchRequest(500, row.bytes_min, row.bytes_max, 0, 0, -1, [], [], "")
    settings = dataclasses.replace(broker.services.config, fetch_bytes_max=row.broker_max)
    services = dataclasses.replace(broker.services, config=settings)
    found = FetchRound(services, request, asked, Call(ApiKey.FETCH, 12, 1, "test", PEER))
    finish(found.collect())
    assert not found.needs_reading
    return found


VALUES_OF_A_BATCH = 1_000


async def stored(broker: Broker, client: WireClient, counts: tuple[int, ...]) -> list[list[int]]:
    """Produce so many batches to each partition of `t`; return their sizes."""
    await create_topic(broker, partition_count=len(counts))
    data = batch(bytes(VALUES_OF_A_BATCH))
    for partition, count in enumerate(counts):
        for _ in range(count):
            assert (await produce(client, data, partition=partition)).error_code == 0
    return [[len(data)] * count for count in counts]


def is_as_full_as_can_be(row: Row, logs: list[list[int]], found: FetchRound) -> bool:
    """Kafka waits in vain: its first batch is larger than its partition's limit, and of no other
    partition even the first one fits. Nothing that is produced later can change this answer."""
    first, *others = filter(None, logs)
    left = min(row.bytes_max, row.broker_max) - found.size
    is_over = found.size == first[0] > row.partition_max
    return is_over and all(sizes[0] > min(left, row.partition_max) for sizes in others)


@pytest.mark.parametrize("counts", [(5,), (1,), (0,), (2, 3), (0, 1, 4)])
async def test_every_pair_of_limits_waits_as_kafka_does(
    broker: Broker, client: WireClient, counts: tuple[int, ...]
) -> None:
    """Where batches are cut by limits of all sizes: below one, just one, one and a half, all."""
    logs = await stored(broker, client, counts)
    size = len(batch(bytes(VALUES_OF_A_BATCH)))
    sizes = [0, 1, size - 1, size, size + 1, size * 3 // 2, 2 * size, 3 * size + 7, 99 * size]
    answers = set()
    for limits in itertools.product(sizes, sizes, sizes, [size, 2 * size + 1, 50_000_000]):
        row = Row(*limits)
        found = decided(broker, row, len(counts))
        if found.is_enough and kafka_waits(row, logs):
            assert is_as_full_as_can_be(row, logs, found), (row, found.size)
        else:
            assert (not found.is_enough) == kafka_waits(row, logs), (row, found.size)
        answers.add(found.is_enough)
    assert answers == {True, False} or counts == (0,)


def scaled(*limits: int) -> Row:
    """Kafka was asked with batches of 600,000 bytes."""
    return Row(*(limit * len(batch(bytes(VALUES_OF_A_BATCH))) // 600_000 for limit in limits))


MEASURED = [
    (scaled(2_000_000, 1_000_000, 1_000_000), False),
    (scaled(1_000_000, 1_000_000, 1_000_000), False),
    (scaled(1_000_000, 1_100_000, 1_100_000), False),
    (scaled(1_500_000, 1_600_000, 1_600_000), False),
    (scaled(1_500_000, 50_000_000, 1_600_000), False),
    (scaled(1_000_000, 100_000, 100_000), False),
    (scaled(2_000_000, 50_000_000, 1_000_000), True),
    (scaled(20_000_000, 50_000_000, 50_000_000), True),
]


@pytest.mark.parametrize(("row", "waits"), MEASURED)
async def test_what_kafka_was_seen_to_do(
    broker: Broker, client: WireClient, row: Row, waits: bool
) -> None:
    logs = await stored(broker, client, (5,))
    assert kafka_waits(row, logs) is waits
    assert decided(broker, row, 1).is_enough is not waits


@pytest.mark.parametrize("is_session", [False, True])
async def test_a_full_answer_leaves_at_once(
    broker: Broker, client: WireClient, is_session: bool
) -> None:
    """In a session the limits of its partitions hold, whichever request named them."""
    await stored(broker, client, (5,))
    size = len(batch(bytes(VALUES_OF_A_BATCH)))
    limits = {
        "wait_ms": 60_000, "bytes_min": 2 * size - 1, "bytes_max": 2 * size - 1,
        "partition_bytes_max": 2 * size - 1,
    }  # fmt: skip
    if is_session:
        limits["session_epoch"] = 0
    answer = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, **limits))
    assert len(bytes(answer.responses[0].partitions[0].records)) == size
    if is_session:
        limits |= {"session_id": answer.session_id, "session_epoch": 1}
        fields = {**fetch_fields(0, **limits), "topics": []}
        again = await client.call(ApiKey.FETCH, 12, **fields)
        assert len(bytes(again.responses[0].partitions[0].records)) == size


async def test_many_small_batches_are_as_good_as_large_ones(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that has as many batches as it may is full, whatever its size."""
    await stored(broker, client, (5,))
    monkeypatch.setattr(tail_cache, "READ_BATCHES_MAX", 2)
    size = len(batch(bytes(VALUES_OF_A_BATCH)))
    found = decided(broker, Row(4 * size, 9 * size, 9 * size), 1)
    assert found.size == 2 * size
    assert found.is_enough

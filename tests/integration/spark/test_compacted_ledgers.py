"""Ledger mode across compaction: plans made before a swap, read before, in and after the grace.

Whatever a plan finds, its rows were committed, and each key ends with its last value: the old
ledgers until their grace is over, then the broker, which has the new ones.
"""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from client.pubsub import Subscriber
from client.spark.ledgers import ledger_access
from client.spark.options import Options
from client.spark.plan import ledger_mode
from client.spark.read.task_reader import read_task
from client.spark.splits import LedgerSplit, Split, TaskSplits
from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.spark.test_ledger_mode import everything
from tests.integration.spark.topics import create

pytestmark = pytest.mark.timeout(300)

TOPIC = "compacted-ledgers"
KEYS = 20
TRANSACTIONS = 60


class Row(NamedTuple):
    """A record as Spark gets it."""

    offset: int
    key: bytes
    value: bytes


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[LocalCluster]:
    """One broker, which compacts when it is asked and lets replaced ledgers go after 6 s."""
    environ = {
        "QUIRE_BROKER_COMPACTION_CHECK_INTERVAL_MS": "300",
        "QUIRE_BROKER_COMPACTION_GRACE_MS": "6000",
    }
    with LocalCluster(tmp_path / "cluster", brokers=1, environ=environ) as cluster:
        yield cluster
    for access in ledger_access._shared.values():
        access.close()
    ledger_access._shared.clear()


def fill(cluster: LocalCluster) -> tuple[dict[int, Row], list[Row]]:
    """Write transactions, every third of them aborted; return what was committed, by offset, and
    what was not."""
    rng = random.Random(5)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "linger.ms": 0}
    )
    producer.init_transactions(30)
    committed: dict[int, Row] = {}
    void: list[Row] = []

    def send(key: bytes, value: bytes, rows: list[Row]) -> None:
        producer.produce(
            TOPIC, key=key, value=value,
            on_delivery=lambda _, message: rows.append(Row(message.offset(), key, value)),
        )  # fmt: skip

    for number in range(TRANSACTIONS):
        rows: list[Row] = []
        producer.begin_transaction()
        for part in range(10):
            word = b"%d.%d %s" % (number, part, b"x" * 200)
            send(b"key-%d" % rng.randrange(KEYS), word, rows)
        assert producer.flush(30) == 0
        if number % 3 == 2:
            producer.abort_transaction(30)
            void += rows
        else:
            producer.commit_transaction(30)
            committed |= {row.offset: row for row in rows}
    return committed, void


def admin(cluster: LocalCluster, method: str, path: str) -> Any:
    port = cluster.about["brokers"][0]["admin"]
    url = f"http://127.0.0.1:{port}/admin/v1/topics/{TOPIC}/partitions/0{path}"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def read(splits: Sequence[Split], settings: Options) -> list[Row]:
    return [
        Row(*row)
        for split in splits
        for rows in read_task(TaskSplits((split,)), settings)
        for row in zip(*(rows.to_pydict()[name] for name in Row._fields), strict=True)
    ]


def check(found: Sequence[Row], committed: dict[int, Row]) -> None:
    """Nothing that was not committed, in order, and each key ends with its last value."""
    assert [row for row in found if committed.get(row.offset) != row] == []
    assert [row.offset for row in found] == sorted({row.offset for row in found})
    ended = {row.key: row for row in found}
    assert ended == {row.key: row for _, row in sorted(committed.items())}


async def subscribed(cluster: LocalCluster, count: int) -> list[Row]:
    async with Subscriber(
        TOPIC, bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed"
    ) as subscriber:
        found: list[Row] = []
        async with asyncio.timeout(60):
            async for record in subscriber:
                found.append(Row(record.offset, record.key or b"", record.value or b""))
                if len(found) == count:
                    return found
    raise AssertionError("it ended")


def test_a_plan_is_read_across_swap_and_grace(compacting: LocalCluster) -> None:
    cluster = compacting
    create(
        cluster, TOPIC,
        configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0",
                 "segment.bytes": "20000", "min.insync.replicas": "1"},
    )  # fmt: skip
    committed, void = fill(cluster)
    admin(cluster, "POST", "/roll")
    settings = Options(
        cluster.bootstrap_servers, columns=("offset", "key", "value"), read_mode="ledger",
        metadata_service_uri=cluster.zookeeper, partition_bytes_max=20_000, read_committed=True,
    )  # fmt: skip
    whole = everything(cluster, TOPIC)
    plan = ledger_mode.plan([whole], settings)
    direct = [split for split in plan if isinstance(split, LedgerSplit)]
    assert len({split.ledger_id for split in direct}) > 3
    before = read(plan, settings)
    assert {row.offset for row in before} == committed.keys()
    check(before, committed)

    admin(cluster, "POST", "/compact")
    wait_until(lambda: admin(cluster, "GET", "/compaction")["cleaned_ms"] is not None, "a round")
    assert admin(cluster, "GET", "/compaction")["retired_ledgers"] > 3
    # In the grace the plan's ledgers are there: it finds what it would have found before.
    assert read(plan, settings) == before
    new = read(ledger_mode.plan([whole], settings), settings)
    check(new, committed)
    assert len(new) < len(before)

    wait_until(
        lambda: admin(cluster, "GET", "/compaction")["retired_ledgers"] == 0, "the grace's end", 60
    )
    # Bookies may hold a deleted ledger until their next garbage collection, and then it is gone:
    # a ledger that never was stands for one of those. Both are read, half and half.
    check(read(plan, settings), committed)
    moved = [
        LedgerSplit(**{**vars(split), "ledger_id": 1 << 40})
        if isinstance(split, LedgerSplit) and at % 2
        else split
        for at, split in enumerate(plan)
    ]
    after = read(moved, settings)
    check(after, committed)
    assert len(after) < len(before)
    assert read(ledger_mode.plan([whole], settings), settings) == new
    assert not {row.offset for row in after} & {row.offset for row in void}
    assert asyncio.run(subscribed(cluster, len(new))) == new

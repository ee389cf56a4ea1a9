"""What a broker sends of a partition, as a log file, and what `kafka-dump-log` says of it.

A log file is nothing but batches one after the other, so the record bytes of Fetch answers make
one. The tool checks each batch's CRC, opens every record, and shows markers of transactions.
"""

from __future__ import annotations

import re
from pathlib import Path

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.integration.clients.kafka_tools import shared_jvm

MAIN = "org.apache.kafka.tools.DumpLogSegments"
"""kafka-dump-log"""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_RECORDS = 5
BATCHES = len(CODECS) + 4
"""What `fill` writes: one of each codec, two of transactions, and their two markers."""
_END = len(CODECS) * _RECORDS + 4
_TIMEOUT_S = 30.0
_OF_THE_CLUSTER = (
    (re.compile(r"(CreateTime|producerId|crc|partitionLeaderEpoch|deleteHorizonMs): -?\w+"), r"\1"),
    (re.compile(r"Dumping .*"), "Dumping"),
)


async def fill(servers: str, topic: str) -> None:
    """Make a topic with a batch of each codec, a committed transaction, and an aborted one."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_TIMEOUT_S)
    for codec in CODECS:
        await _write_batch(servers, topic, codec)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 100})
    producer.init_transactions(_TIMEOUT_S)
    for is_kept in (True, False):
        producer.begin_transaction()
        producer.produce(topic, f"kept: {is_kept}", "key")
        assert producer.flush(_TIMEOUT_S) == 0
        if is_kept:
            producer.commit_transaction(_TIMEOUT_S)
        else:
            producer.abort_transaction(_TIMEOUT_S)


async def _write_batch(servers: str, topic: str, codec: str) -> None:
    """aiokafka sends the batch that it is given; others may split it at a slow moment."""
    kind = None if codec == "none" else codec
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type=kind) as producer:
        batch = producer.create_batch()
        for number in range(_RECORDS):
            value = f"{codec}-{number}".encode() * 20
            headers = [("codec", codec.encode())]
            batch.append(key=b"key-%d" % number, value=value, timestamp=None, headers=headers)
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))


async def fetch(servers: str, topic: str) -> bytes:
    """Return everything of partition 0 as the broker sends it.

    A transaction has ended before its markers are written, so the last one is waited for.
    """
    client = await WireClient.connect(int(servers.rpartition(":")[2]))
    data, offset = b"", 0
    while offset < _END:
        answer = await client.call(
            ApiKey.FETCH, 12, replica_id=-1, max_wait=100, min_bytes=1, max_bytes=1 << 20,
            isolation_level=0, session_id=0, session_epoch=-1, rack_id="",
            topics=[{"topic": topic, "partitions": [{
                "partition": 0, "current_leader_epoch": -1, "fetch_offset": offset,
                "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20,
            }]}],
        )  # fmt: skip
        (row,) = answer.responses[0].partitions
        if row.records:
            data += row.records
            offset = row.high_watermark
    await client.close()
    return data


def dump(data: bytes, folder: Path) -> list[str]:
    """Return what the tool says of such a file, without what is a cluster's own."""
    file = folder / f"{0:020}.log"
    file.write_bytes(data)
    ended = shared_jvm().run(MAIN, "--print-data-log", "--files", str(file))
    assert ended.code == 0, ended.err
    lines = [one.strip() for one in f"{ended.out}\n{ended.err}".splitlines() if one.strip()]
    for pattern, word in _OF_THE_CLUSTER:
        lines = [pattern.sub(word, line) for line in lines]
    return lines

"""A produce request, byte for byte what the schema says."""

from __future__ import annotations

from client.wire.kafka.apis import ApiKey, request_type
from client.wire.kafka.decoder import decode
from client.wire.kafka.produce_client import VERSION, encode_produce


def test_a_decoder_made_from_the_schema_reads_it() -> None:
    topics = {"one": [(0, b"first"), (3, b"second")], "tö": [(1, b"")]}
    body = encode_produce(-1, 1500, topics)
    read = decode(request_type(ApiKey.PRODUCE, VERSION), memoryview(body))
    assert (read.acks, read.transactional_id) == (-1, None)
    assert read.timeout.total_seconds() == 1.5
    assert {
        topic.name: [(part.index, bytes(part.records)) for part in topic.partition_data]
        for topic in read.topic_data
    } == topics

"""The parsers, good inputs to begin with, and what each may do with bad ones.

A parser returns or raises one of our own errors. It never raises anything else, never takes long,
and never takes memory that the input does not pay for.
"""

from __future__ import annotations

import functools
import io
import random
import uuid
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kio.serial import entity_writer

from bookie.cookie import Cookie, decode_cookie
from bookie.core.append_log import LogPosition
from bookie.core.checkpoint import Checkpoint, decode_checkpoint
from bookie.core.log_format import unpack_file_header, unpack_record
from bookie.core.log_scan import LogScan
from bookie.registration import service_info
from broker.core.batch_checks import BatchLimits, check_batch
from broker.core.consumer_protocol import assigned_partitions, subscribed_topics
from broker.core.entry_format import batch_headers, first_offset
from broker.core.offset_records import decode as decode_offset_record
from broker.core.producer_state import ProducerState
from broker.core.segments import SegmentList, decode_segments
from broker.core.snapshot import open_snapshot, seal_snapshot
from broker.core.topic_config import TopicConfig
from broker.core.topology import BrokerInfo, TopicInfo
from broker.handlers.registry import handlers
from broker.owner_node import decode_owner
from client.errors import QuireError
from client.ids import BookieId, BrokerId, LeaderEpoch, Offset
from client.ledger.bookie_directory import parse_service_info
from client.ledger.core import metadata_codec
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.connection import decode_call
from client.wire.frames import FrameSplitter
from client.wire.kafka import apis, codec, fetch, produce
from client.wire.kafka.fetch_client import decode_fetch
from client.wire.kafka.record_builder import Record, build_batch, records
from client.wire.kafka.records import Codec
from tests.unit.client.wire.bookkeeper import vectors
from tests.unit.client.wire.kafka.instances import instance

INFLATED_BYTES_MAX: Final = 1 << 20


class Target(NamedTuple):
    """One parser."""

    name: str
    parse: Callable[[bytes], object]
    seeds: list[bytes]
    bytes_per_byte_max: int = 400
    """Peak memory per byte of input: Python's objects for a small field are large."""
    bytes_max: int = 1 << 18
    """Peak memory that is allowed whatever the input."""


def drained(found: Iterable[object]) -> int:
    """Go through a lazy parser's whole result."""
    return sum(1 for _ in found)


def _kafka_seeds(keys: Iterable[int], *, requests: bool) -> list[bytes]:
    """One random value of every version: key, version, then the body."""
    seeds = []
    for key in keys:
        low, high = _SERVED[key]
        for version in range(max(low, apis.schema_versions(key)[0]), high + 1):
            rng = random.Random(f"{key}.{version}")
            entity = (apis.request_type if requests else apis.response_type)(key, version)
            body = io.BytesIO()
            entity_writer(entity)(body, instance(entity, rng)[0])
            seeds.append(bytes([key, version - low]) + body.getvalue())
    return seeds


def _kafka(
    parse: Callable[[int, int, memoryview], object], keys: Iterable[int]
) -> Callable[[bytes], object]:
    known = set(keys)

    def run(data: bytes) -> object:
        if len(data) < 2 or data[0] not in known:
            return None
        low, high = _SERVED[data[0]]
        return parse(data[0], low + data[1] % (high + 1 - low), memoryview(data)[2:])

    return run


def _batches() -> list[bytes]:
    plain = [Record(b"k", b"v" * n, 1_700_000_000_000 + n, (("h", None),)) for n in range(1, 9)]
    return [build_batch(plain, codec=each) for each in Codec] + [
        build_batch([Record(None, None, 0, ())], control=True, transactional=True)
    ]


def _split(data: bytes) -> int:
    splitter = FrameSplitter(1 << 16)
    step = 1 + len(data) % 7
    return sum(len(splitter.feed(data[at : at + step])) for at in range(0, len(data), step))


def _scan(data: bytes) -> int:
    return drained(
        LogScan(lambda at, size: data[at : at + size], len(data), seed=7, window_bytes=4096)
    )


def _snapshot(data: bytes) -> object:
    return ProducerState().restore(open_snapshot(data).producers)


def _offset_record(data: bytes) -> object:
    cut = data[0] if data else 0
    return decode_offset_record(data[1 : 1 + cut], data[1 + cut :] or None)


_SNAPSHOT: Final = seal_snapshot(Offset(9), LeaderEpoch(2), 5, (), ProducerState())
_CHECKPOINT: Final = Checkpoint(7, LogPosition(1, 64), 1, ()).encode()
_COOKIE: Final = Cookie(BookieId("b:3181"), ("/data",), "an instance").encode()
_METADATA: Final = b"BookieMetadataFormatVersion\t3\n\x3b" + vectors.METADATA
_REQUESTS: Final = [v[4:] for v in (vectors.V2_ADD, vectors.V2_FENCING_READ_LAST, vectors.V3_ADD)]
_BROKER: Final = BrokerInfo(
    id=BrokerId(1), incarnation="x", host="host", port=9092, advertised=True
).encode()
_TOPIC: Final = TopicInfo(
    name="t",
    topic_id=uuid.UUID(int=7),
    partition_count=2,
    replication_factor=3,
    config=TopicConfig.parse({}),
).encode()
_SERVED: Final = {handler.key: handler.versions for handler in handlers()}
_GENERIC: Final = [key for key in _SERVED if key not in (0, 1)]

TARGETS: Final = [
    Target("kafka-frames", _split, [b"\0\0\0\5hello\0\0\0\0", b"\x7f\xff\xff\xff"]),
    Target(
        "kafka-request-header",
        lambda data: codec.read_header(memoryview(data)) if _is_known(data) else None,
        [b"\0\3\0\x0c\0\0\0\7\0\4test\0", b"\0\x12\0\3\0\0\0\1\xff\xff\0"],
    ),
    Target(
        "kafka-requests",
        _kafka(codec.decode_request, _GENERIC),
        _kafka_seeds(_GENERIC, requests=True),
        bytes_per_byte_max=2000,
    ),
    Target(
        "kafka-produce",
        _kafka(lambda key, version, body: produce.parse_request(version, body), [0]),
        _kafka_seeds([0], requests=True),
    ),
    Target(
        "kafka-fetch",
        _kafka(lambda key, version, body: fetch.parse_request(version, body), [1]),
        _kafka_seeds([1], requests=True),
    ),
    Target(
        "kafka-fetch-answer",
        lambda data: decode_fetch(memoryview(data)),
        [seed[2:] for seed in _kafka_seeds([1], requests=False)],
    ),
    Target(
        "record-batch",
        lambda data: check_batch(memoryview(data), BatchLimits(), 1_700_000_000_000),
        _batches(),
    ),
    Target("entry-headers", lambda data: (batch_headers(data), first_offset(data)), _batches()),
    Target(
        "records",
        lambda data: drained(records(data, size_max=INFLATED_BYTES_MAX)),
        _batches(),
        bytes_max=4 * INFLATED_BYTES_MAX,
    ),
    Target("group-subscription", subscribed_topics, [b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"]),
    Target("group-assignment", assigned_partitions, [b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0"]),
    Target("offset-record", _offset_record, [b"\x0d\0\1\0\1g\0\1t\0\0\0\0", b"\5\0\2\0\1g"]),
    Target("snapshot", _snapshot, [_SNAPSHOT]),
    Target("segment-list", decode_segments, [SegmentList().encode(), b"{}", b"[[[["]),
    Target("owner", decode_owner, [b'{"broker": 1, "incarnation": "x"}']),
    Target(
        "broker-info",
        lambda data: BrokerInfo.decode(BrokerId(1), data),
        [_BROKER],
    ),
    Target("topic-info", functools.partial(TopicInfo.decode, "t"), [_TOPIC]),
    Target("bookie-request", lambda data: decode_call(memoryview(data)), _REQUESTS),
    Target(
        "bookie-answer-v2",
        lambda data: v2.decode_response(memoryview(data)),
        [vectors.V2_ADD_OK[4:]],
    ),
    Target(
        "bookie-answer-v3",
        lambda data: v3.decode_response(memoryview(data)),
        [vectors.V3_ADD_OK[4:]],
    ),
    Target("ledger-metadata", metadata_codec.decode, [_METADATA]),
    Target(
        "service-info",
        functools.partial(parse_service_info, BookieId("b:3181")),
        [service_info("host", 3181, 8080, "rack")],
    ),
    Target("cookie", lambda data: decode_cookie(data, "VERSION"), [_COOKIE]),
    Target("checkpoint", decode_checkpoint, [_CHECKPOINT]),
    Target("log-file-header", unpack_file_header, [bytes(64)]),
    Target("log-record", lambda data: unpack_record(memoryview(data), 7), [bytes(64)]),
    Target("log-scan", _scan, [bytes(4096), bytes(range(256)) * 32]),
]


def _is_known(data: bytes) -> bool:
    if len(data) < 8:
        return False
    key, version, _ = codec.peek_header(memoryview(data))
    return key in _SERVED and _SERVED[key][0] <= version <= _SERVED[key][1]


def allowed(error: BaseException) -> bool:
    """Whether a parser may raise this: our own errors, which say what is wrong."""
    return isinstance(error, QuireError)

"""The parsers, good inputs to begin with, and what each may do with bad ones.

A parser returns or raises one of our own errors. It never raises anything else, never takes long,
and never takes memory that the input does not pay for.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import random
import uuid
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kio.serial import entity_writer

from bookie.membership.cookie import Cookie, decode_cookie
from bookie.membership.registration import service_info
from bookie.storage.core.append_log import LogPosition, unpack_file_header, unpack_record
from bookie.storage.core.availability import encode_availability
from bookie.storage.core.log_scan import LogScan
from bookie.storage.index.indexer import Checkpoint, decode_checkpoint
from broker.admin.request import JSON
from broker.admin.schema import Faults, read, read_text
from broker.admin.table import COMPONENTS, OPERATIONS, PATH
from broker.cluster.core.features import Finalized
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.cluster.owner_node import decode_owner
from broker.coordinator.core.connection_order import Session
from broker.front.handlers.registry import advertised, handlers
from broker.front.telemetry import points
from broker.groups.core.consumer_protocol import assigned_partitions, subscribed_topics
from broker.groups.core.offset_records import decode as decode_offset_record
from broker.link.core.link_frames import (
    Hello,
    decode_hello,
    encode_hello,
    split_answer,
    split_request,
)
from broker.partition.core.batch_checks import BatchLimits, check_batch
from broker.partition.core.held_batches import VerificationRequest
from broker.partition.core.producer_state import ProducerState
from broker.settings.live_settings import decode as decode_configs
from broker.topics.producer_ids import decode as _decode_producer_ids
from broker.transactions.core.link_messages import (
    MarkersRequest,
    MarkerTopic,
    SentMarker,
    decode_markers,
    decode_outcomes,
    decode_questions,
    decode_verdicts,
    encode_markers,
    encode_questions,
)
from broker.transactions.core.transaction_records import decode as decode_transaction_record
from client.errors import ConfigError, MetadataCorrupt, QuireError
from client.ids import BookieId, BrokerId, EntryId, LeaderEpoch, LedgerId, Offset, ProducerId
from client.ledger.bookies.bookie_directory import parse_service_info
from client.ledger.core import metadata_codec
from client.log.entry_format import (
    batch_headers,
    first_offset,
    has_transactions,
    next_offset,
)
from client.log.segment_pages import decode_page
from client.log.segments import SegmentList, decode_segments
from client.log.snapshot import NO_TRANSACTIONS, open_snapshot, seal_snapshot, snapshot_points
from client.spark.decode.decode import Wanted, decode
from client.spark.errors import SparkSourceError
from client.spark.schema import COLUMNS
from client.spark.write.exactly_once.decision import Decision, TaskTransaction
from client.spark.write.exactly_once.decision import decode as decode_decision
from client.spark.write.exactly_once.decision import encode as encode_decision
from client.wire.bookkeeper import protobuf, v2, v3
from client.wire.bookkeeper.availability import Holdings
from client.wire.bookkeeper.connection import decode_call
from client.wire.bookkeeper.entry import DigestType, EntryCodec
from client.wire.frames import FrameSplitter
from client.wire.kafka import apis, codec, connection, fetch, produce
from client.wire.kafka.batches.records import (
    Codec,
    Record,
    build_batch,
    compress,
    decompress,
    records,
)
from client.wire.kafka.decoder import decode as decode_entity
from client.wire.kafka.fetch_client import decode_fetch
from tests.fakes.segment_lists import in_pages, long_list
from tests.fuzz.login_targets import LOGIN_TARGETS
from tests.unit.client.wire.bookkeeper import vectors
from tests.unit.client.wire.kafka.instances import instance

INFLATED_BYTES_MAX: Final = 1 << 20


_PUSHED: Final = bytes.fromhex(
    "0a440a0a0a080a016712030a0178123612190a016d3a140a1221000000000000f83f3a070a016e1202180312190a01"
    "684a140a12210300000000000000290000000000001240"
)
"""Metrics of a client: a sum with an attribute, and a histogram."""


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


def _text_node(kind: Any) -> Callable[[bytes], object]:
    """A node of auto recovery."""

    def run(data: bytes) -> object:
        try:
            return protobuf.parse_text(data, kind())
        except ValueError as error:
            raise MetadataCorrupt(str(error)) from error

    return run


def _rows(data: bytes) -> int:
    wanted = Wanted("t", 0, 0, 1 << 60, COLUMNS, decompressed_bytes_max=1 << 20)
    found = decode([data], wanted)
    return sum(batch.num_rows for batch in found)


def _holdings(data: bytes) -> int:
    found = Holdings(data)
    return sum(EntryId(entry) in found for entry in range(60))


def _inflate(data: bytes) -> object:
    codec = Codec(1 + data[0] % 4) if data else Codec.GZIP
    return decompress(codec, data[1:], INFLATED_BYTES_MAX)


def _responses() -> list[bytes]:
    """One random answer of every kind, in the newest version."""
    seeds = []
    for key in _GENERIC:
        entity = apis.response_type(key, _SERVED[key][1])
        body = io.BytesIO()
        entity_writer(entity)(body, instance(entity, random.Random(str(key)))[0])
        seeds.append(bytes([key]) + body.getvalue())
    return seeds


def _response(data: bytes) -> object:
    if not data or data[0] not in _GENERIC:
        return None
    return decode_entity(apis.response_type(data[0], _SERVED[data[0]][1]), memoryview(data)[1:])


def _admin_body(data: bytes) -> object:
    """The first byte says which operation's body it is."""
    taking = [one for one in OPERATIONS if JSON in one.takes]
    operation = taking[data[0] % len(taking)] if data else taking[0]
    try:
        value = json.loads(data[1:])
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(error)) from error
    try:
        return read(operation.takes[JSON], value, "", COMPONENTS)
    except Faults as error:
        raise ConfigError(str(error)) from error


def _admin_query(data: bytes) -> object:
    fields = [*PATH.values(), *(each for one in OPERATIONS for each in one.query.values())]
    schema = fields[data[0] % len(fields)] if data else fields[0]
    try:
        return read_text(schema, [data[1:].decode("utf-8", "surrogateescape")], "field")
    except Faults as error:
        raise ConfigError(str(error)) from error


def _offset_record(data: bytes) -> object:
    cut = data[0] if data else 0
    return decode_offset_record(data[1 : 1 + cut], data[1 + cut :] or None)


def _transaction_record(data: bytes) -> object:
    cut = data[0] if data else 0
    return decode_transaction_record(data[1 : 1 + cut], data[1 + cut :] or None)


def _decision(data: bytes) -> object:
    """The same bytes as metadata, and as what is inside of it."""
    for text in (data, b"1|q|" + base64.b64encode(zlib.compress(data))):
        with contextlib.suppress(SparkSourceError):
            decode_decision(7, text.decode("latin-1"))
    return decode_decision(7, data.decode("latin-1"))


_DECISION: Final = Decision("query", 7, tuple(TaskTransaction(n, n, 40 + n, 2) for n in range(9)))
_TRANSACTION: Final = bytes.fromhex(
    "06 0000 0002 7478"  # the key's size, version, "tx"
    "0001 0000000000000007 0003 0000ea60 01"
    "02 0274 02 00000005 00"  # topic "t", partition 5
    "0000018bcfe56802 0000018bcfe56801"
    "03 0202 0002 6402 0002 6510 0102030405060708090a0b0c0d0e0f10"
)
_SNAPSHOT: Final = seal_snapshot(Offset(9), LeaderEpoch(2), 5, (), ProducerState().encode())
_TRANSACTIONAL: Final = seal_snapshot(
    Offset(9), LeaderEpoch(2), 5, (), ProducerState().encode(), NO_TRANSACTIONS
)
_CHECKPOINT: Final = Checkpoint(7, LogPosition(1, 64), 1, ()).encode()
_COOKIE: Final = Cookie(BookieId("b:3181"), ("/data",), "an instance").encode()
_METADATA: Final = b"BookieMetadataFormatVersion\t3\n\x3b" + vectors.METADATA
_METADATA_TEXTS: Final = [
    b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\ta\tb\tc\n9\tCLOSED",
    b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 2\nlength: 0\nstate: OPEN\n"
    b'segment {\n ensembleMember: "a:1"\n ensembleMember: "b:1"\n firstEntryId: 0\n}\n'
    b'digestType: CRC32C\npassword: "s"\nunknown { x: 1 }\n',
]
_SEGMENTS: Final = (
    b'{"version":1,"leader_epoch":2,"log_start_offset":3,"segments":[{"ledger":1,"base_offset":0,'
    b'"leader_epoch":1,"created_ms":5,"last_offset":8,"bytes":90,"max_timestamp_ms":7},'
    b'{"ledger":2,"base_offset":9,"leader_epoch":2,"created_ms":6}]}'
)
_HEAD, _PAGES = in_pages(long_list(4), 2)
_PAGE: Final = _PAGES[_HEAD.pages[0].name]
_ENTRY: Final = EntryCodec(LedgerId(7), DigestType.DUMMY, b"")
_HOLDINGS: Final = encode_availability([EntryId(n) for n in (0, 1, 2, 5, 8, 11, 40)])
_PLAIN: Final = b"some bytes " * 20
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
_SERVED: Final = advertised(handlers())
_HELLO: Final = encode_hello(Hello("cluster", BrokerId(1), "run a", BrokerId(2), "run b"))
_MARKERS: Final = encode_markers(
    MarkersRequest(
        3,
        Session(LeaderEpoch(4), 5),
        [
            SentMarker(
                MarkerTopic(uuid.UUID(int=7), "orders"), 1, LeaderEpoch(2), ProducerId(9), 4, True,
                False,
            )
        ],
    )
)  # fmt: skip
_QUESTIONS: Final = encode_questions(
    [VerificationRequest("tx", ProducerId(9), 4, "orders", uuid.UUID(int=7), 1, True)]
)
_GENERIC: Final = [key for key in _SERVED if key not in (0, 1)]

TARGETS: Final = [
    Target("link-request", lambda data: split_request(memoryview(data)), [b"\1x", b""]),
    Target("link-answer", lambda data: split_answer(memoryview(data)), [bytes(9), b"\0\0\0\1\1"]),
    Target("link-hello", lambda data: decode_hello(memoryview(data)), [_HELLO]),
    Target("link-markers", lambda data: decode_markers(memoryview(data)), [_MARKERS]),
    Target("link-outcomes", lambda data: decode_outcomes(memoryview(data)), [b"\1\0\0\0\2\0\3"]),
    Target("link-questions", lambda data: decode_questions(memoryview(data)), [_QUESTIONS]),
    Target(
        "link-verdicts",
        lambda data: decode_verdicts(memoryview(data)),
        [b"\0\0\0\1\0\0\0\0\0\7"],
    ),
    Target("client-metrics", lambda data: drained(points(data)), [_PUSHED]),
    Target(
        "settings-node",
        lambda data: decode_configs("@1", data),
        [
            b'{"version":1,"configs":{"num.partitions":"3"}}',
        ],
    ),
    Target("features", Finalized.decode, [b'{"version":1,"epoch":3,"levels":{"a":1}}']),
    Target("kafka-frames", _split, [b"\0\0\0\5hello\0\0\0\0", b"\x7f\xff\xff\xff"]),
    Target(
        "kafka-request-header",
        lambda data: connection.read_header(memoryview(data)) if _is_known(data) else None,
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
    Target(
        "sink-decision",
        _decision,
        [encode_decision(_DECISION).encode(), b"[[1,1],[0,3],[7,5],[2,2]]"],
        bytes_max=16 << 20,
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
    Target("transaction-record", _transaction_record, [_TRANSACTION, _TRANSACTION[:7]]),
    Target("snapshot", _snapshot, [_SNAPSHOT, _TRANSACTIONAL]),
    Target(
        "segment-list", decode_segments, [_SEGMENTS, SegmentList().encode(), b"{}", b"[", b"[[[["]
    ),
    Target("segment-list-pages", decode_segments, [_HEAD.encode(), b'{"version":2,"pages":[[1]]}']),
    Target(
        "segment-page",
        lambda data: decode_page(data, _HEAD.pages[0]),
        [_PAGE.encode(), b'{"version":1,"level":1,"pages":[]}'],
    ),
    Target("producer-ids", _decode_producer_ids, [b'{"version": 1, "next": 1000}']),
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
    Target("ledger-metadata", metadata_codec.decode, [_METADATA, *_METADATA_TEXTS]),
    Target(
        "service-info",
        functools.partial(parse_service_info, BookieId("b:3181")),
        [service_info("host", 3181, 8080, "rack")],
    ),
    Target("cookie", lambda data: decode_cookie(data, "VERSION"), [_COOKIE]),
    Target("checkpoint", decode_checkpoint, [_CHECKPOINT]),
    Target("log-file-header", unpack_file_header, [bytes(64)]),
    Target("log-record", lambda data: unpack_record(memoryview(data), 7), [bytes(64)]),
    Target(
        "decompression",
        _inflate,
        [bytes([codec - 1]) + compress(codec, _PLAIN) for codec in list(Codec)[1:]]
        + [b"\1\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"\0\0\0\4" + compress(Codec.SNAPPY, b"ab")],
        bytes_max=4 * INFLATED_BYTES_MAX,
    ),
    Target("kafka-answers", _response, _responses(), bytes_per_byte_max=2000),
    Target("spark-rows", _rows, _batches(), bytes_max=8 * INFLATED_BYTES_MAX),
    Target(
        "entry-of-a-partition",
        lambda data: (next_offset(data), snapshot_points(data), has_transactions(data)),
        [*_batches(), _SNAPSHOT],
    ),
    Target(
        "ledger-entry",
        lambda data: _ENTRY.open(data, None),
        [b"".join(_ENTRY.seal(EntryId(3), EntryId(2), 5, [b"hello"]))],
    ),
    Target("lac-packet", _ENTRY.open_lac, [_ENTRY.seal_lac(EntryId(3))]),
    Target("list-of-entries", _holdings, [_HOLDINGS]),
    Target(
        "recovery-mark",
        _text_node(protobuf.UnderreplicatedLedgerFormat),
        [b'replica: "a:1"\nctime: 5\n'],
    ),
    Target("recovery-vote", _text_node(protobuf.AuditorVoteFormat), [b'bookieId: "a:1"\n']),
    Target("admin-body", _admin_body, [b"\0{}", b'\1{"name":"t","partitions":3}', b"\2[[[["]),
    Target("admin-query", _admin_query, [bytes([n]) + b"12" for n in range(20)]),
    *(Target(name, parse, list(seeds)) for name, parse, seeds in LOGIN_TARGETS),
    Target("log-scan", _scan, [bytes(4096), bytes(range(256)) * 32]),
]


def _is_known(data: bytes) -> bool:
    if len(data) < 8:
        return False
    key, version, _ = connection.peek_header(memoryview(data))
    return key in _SERVED and _SERVED[key][0] <= version <= _SERVED[key][1]


def allowed(error: BaseException) -> bool:
    """Whether a parser may raise this: our own errors, which say what is wrong."""
    return isinstance(error, QuireError)

"""Metadata nodes that make no sense: refused, never guessed at, whoever wrote them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bookie.membership.cookie import Cookie, decode_cookie
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.cluster.owner_node import decode_owner
from broker.topics.producer_ids import decode as decode_producer_ids
from client.errors import LogCorrupt, MetadataCorrupt, QuireError
from client.ids import BookieId, BrokerId, EntryId
from client.ledger.bookies.bookie_directory import parse_service_info
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.log.segment_pages import decode_page
from client.log.segments import decode_segments
from client.metadata import paths
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.entry import DigestType
from tests.fakes.broker import FakeCloud
from tests.fakes.segment_lists import in_pages, long_list
from tests.fakes.wire_client import WireClient
from tests.fuzz.targets import _BROKER, _TOPIC
from tests.unit.broker.front.handlers.requests import batch, create_topic, produce

_PREFIX = b"BookieMetadataFormatVersion\t"
CPU_S_MAX = 1.0
SECRET = b"the ledger's password"


def ledger(*fragments: tuple[int, list[str]], **fields: Any) -> bytes:
    """Return a ledger's node without any check."""
    made: dict[str, Any] = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 1, **fields}
    made |= {"digest_type": DigestType.CRC32C, "password": SECRET}
    parts = tuple(Fragment(EntryId(at), tuple(map(BookieId, who))) for at, who in fragments)
    return metadata_codec.encode(LedgerMetadata(fragments=parts, **made))


GOOD = ledger((0, ["a", "b"]), (5, ["a", "c"]))
LEDGERS = {
    "empty": b"",
    "no version": b"{}",
    "unknown version": _PREFIX + b"4\n" + b"x",
    "a version of many digits": _PREFIX + b"3" * 5000 + b"\n",
    "unsorted": ledger((0, ["a", "b"]), (9, ["a", "c"]), (5, ["a", "b"])),
    "twice the same": ledger((0, ["a", "b"]), (5, ["a", "c"]), (5, ["a", "b"])),
    "round in a circle": ledger((0, ["a", "b"]), (5, ["a", "c"]), (0, ["a", "b"])),
    "not from the beginning": ledger((1, ["a", "b"])),
    "a negative beginning": ledger((-1, ["a", "b"]), (0, ["a", "b"])),
    "no fragments": ledger(),
    "too few members": ledger((0, ["a"])),
    "too many members": ledger((0, ["a", "b", "c"])),
    "a member twice": ledger((0, ["a", "a"])),
    "a member without name": ledger((0, ["a", ""])),
    "quorums that do not fit": ledger((0, ["a", "b"]), write_quorum=3),
    "no acks": ledger((0, ["a", "b"]), ack_quorum=0),
    "cut off": GOOD[:-3],
    "longer than it is": _PREFIX + b"3\n\xff\xff\xff\xff\x07" + b"x",
    "nested text": _PREFIX + b"2\nquorumSize: 2\n" + b"x { " * 50_000,
    "text that is none": _PREFIX + b'2\npassword: "' + SECRET + b"\nstate: OPEN\n",
    "lines beyond 64 bits": _PREFIX + b"1\n2\n2\n0\n0\ta\tb\n" + b"9" * 80 + b"\tCLOSED",
    "lines beyond all bits": _PREFIX + b"1\n2\n2\n0\n0\ta\tb\n" + b"9" * 5000 + b"\tCLOSED",
    "bytes": bytes(range(256)) * 4000,
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_that_makes_no_sense_is_not_opened(name: str) -> None:
    began_s = time.process_time()
    with pytest.raises(MetadataCorrupt) as caught:
        metadata_codec.decode(LEDGERS[name])
    assert time.process_time() - began_s < CPU_S_MAX
    assert SECRET.decode() not in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_ledgers_password_is_not_shown() -> None:
    assert metadata_codec.decode(GOOD).password == SECRET
    assert SECRET.decode() not in repr(metadata_codec.decode(GOOD))


SEGMENTS: dict[str, Any] = {
    "version": 1, "leader_epoch": 2, "log_start_offset": 3,
    "segments": [
        {"ledger": 1, "base_offset": 0, "leader_epoch": 1, "created_ms": 5, "last_offset": 8,
         "bytes": 90, "max_timestamp_ms": 7},
        {"ledger": 2, "base_offset": 9, "leader_epoch": 2, "created_ms": 6},
    ],
}  # fmt: skip
TOPIC: dict[str, Any] = json.loads(_TOPIC)
BROKER: dict[str, Any] = json.loads(_BROKER)


def without(fields: Mapping[str, Any], *path: Any, **changes: Any) -> bytes:
    """Return a node's JSON with fields of one part changed."""
    copy = json.loads(json.dumps(fields))
    part = copy
    for step in path:
        part = part[step]
    part.update(changes)
    return json.dumps(copy).encode()


GARBAGE = {
    "no JSON": b"\xff\xfe",
    "cut off": b'{"version": 1',
    "nested": b'{"version":' * 80_000,
    "nested lists": b"[" * 900_000,
    "a list": b"[1]",
    "a number": b"1e999",
    "null": b"null",
    "another version": b'{"version": 99}',
    "many digits": b'{"version": ' + b"9" * 10_000 + b"}",
}
LISTS = {
    "unsorted": without(SEGMENTS, "segments", 1, base_offset=4),
    "a gap": without(SEGMENTS, "segments", 1, base_offset=11),
    "a ledger twice": without(SEGMENTS, "segments", 1, ledger=1),
    "epochs that fall": without(SEGMENTS, "segments", 0, leader_epoch=2, base_offset=0)
    .replace(b'"ledger": 2, "base_offset": 9, "leader_epoch": 2', b'"ledger": 2,'
             b' "base_offset": 9, "leader_epoch": 1'),
    "an epoch beyond the list's": without(SEGMENTS, "segments", 1, leader_epoch=3),
    "a ledger that is text": without(SEGMENTS, "segments", 0, ledger="1"),
    "a negative ledger": without(SEGMENTS, "segments", 0, ledger=-1),
    "beyond 64 bits": without(SEGMENTS, "segments", 1, ledger=2**63),
    "not whole": without(SEGMENTS, log_start_offset=0.5),
    "true": without(SEGMENTS, log_start_offset=True),
}  # fmt: skip
HEAD, _PAGES = in_pages(long_list(4), 2)
_HEAD: dict[str, Any] = json.loads(HEAD.encode())
_FIRST: dict[str, Any] = json.loads(_PAGES[HEAD.pages[0].name].encode())


def changed_ref(at: int, value: object) -> bytes:
    """Return the list's node with one number of its first reference changed."""
    copy = json.loads(json.dumps(_HEAD))
    copy["pages"][0][at] = value
    return json.dumps(copy).encode()


PAGED_LISTS = {
    "no pages": json.dumps({k: v for k, v in _HEAD.items() if k != "pages"}).encode(),
    "a reference that is text": without(_HEAD, pages=["x"]),
    "a reference of another length": without(_HEAD, pages=[[1, 2, 3]]),
    "a page without segments": changed_ref(4, 0),
    "more levels than there are": changed_ref(3, 10**6),
    "a page that overlaps": changed_ref(6, 11),
    "a page name beyond 64 bits": changed_ref(0, 2**63),
    "a negative page": changed_ref(0, -1),
    "a page that is true": changed_ref(0, True),
    "no page yet": without(_HEAD, page_count=0),
    "no segments": without(_HEAD, segments=[]),
}
PAGES = {
    "empty": without(_FIRST, segments=[]),
    "another level": without(_FIRST, level=1),
    "other segments": without(_FIRST, segments=_FIRST["segments"][:1]),
    "not sealed": without(_FIRST, segments=[{**_FIRST["segments"][0], "base_offset": None}]),
    "other bytes": without(_FIRST, "segments", 0, bytes=1),
}
TOPICS = {
    "no partitions": without(TOPIC, partition_count=0),
    "more than anybody can count": without(TOPIC, partition_count=10**12),
    "infinitely many": without(TOPIC).replace(b'"partition_count": 2', b'"partition_count": 1e999'),
    "no copies": without(TOPIC, replication_factor=0),
    "an id that is none": without(TOPIC, topic_id="../x"),
    "settings that are none": without(TOPIC, configs=["retention.ms"]),
    "pins that are none": without(TOPIC, pins=[1]),
    "assignments that are none": without(TOPIC, assignments={"0": 1}),
    "brokers that are none": without(TOPIC, assignments={"0": ["x"]}),
}
BROKERS = {
    "a port that is none": without(BROKER, port=10**6),
    "a port that is text": without(BROKER, port="9092"),
    "no host": json.dumps({k: v for k, v in BROKER.items() if k != "host"}).encode(),
}
PARSERS: dict[str, tuple[Callable[[bytes], object], dict[str, bytes]]] = {
    "segments": (decode_segments, LISTS),
    "segments in pages": (decode_segments, PAGED_LISTS),
    "page": (lambda data: decode_page(data, HEAD.pages[0]), PAGES),
    "topic": (lambda data: TopicInfo.decode("t", data), TOPICS),
    "broker": (lambda data: BrokerInfo.decode(BrokerId(1), data), BROKERS),
    "producer ids": (decode_producer_ids, {"negative": b'{"version": 1, "next": -5}'}),
    "cookie": (lambda data: decode_cookie(data, "VERSION"), {
        "nested": b"4\n" + b"x { " * 50_000,
        "another layout": Cookie(BookieId("b"), ("/d",), "i").encode().replace(b"5", b"4", 1),
    }),
    "service info": (lambda data: parse_service_info(BookieId("b:1"), data), {
        "no address": protobuf.BookieServiceInfoFormat().SerializeToString() + b"\x32\x01\xff",
    }),
}  # fmt: skip
CASES = [
    (parser, name, data)
    for parser, (_, own) in PARSERS.items()
    for name, data in {**(GARBAGE if parser != "service info" else {}), **own}.items()
]


@pytest.mark.parametrize(("parser", "name", "data"), CASES, ids=[f"{a} {b}" for a, b, _ in CASES])
def test_a_node_that_makes_no_sense_is_refused(parser: str, name: str, data: bytes) -> None:
    began_s = time.process_time()
    with pytest.raises(QuireError) as caught:
        PARSERS[parser][0](data)
    assert time.process_time() - began_s < CPU_S_MAX
    assert len(str(caught.value)) < 20_000


@pytest.mark.parametrize("name", GARBAGE)
def test_an_owner_that_makes_no_sense_is_refused(name: str) -> None:
    with pytest.raises(LogCorrupt):
        decode_owner(GARBAGE[name])


def test_the_good_ones_are_read() -> None:
    """What is refused above is refused for the change that was made."""
    for name, fields in (("segments", SEGMENTS), ("topic", TOPIC), ("broker", BROKER)):
        assert PARSERS[name][0](without(fields))


async def test_a_broker_serves_beside_nodes_that_make_no_sense(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cloud = FakeCloud()
    caplog.set_level(logging.ERROR)
    try:
        vandal = cloud.tree.session()
        for name, data in {**GARBAGE, **TOPICS}.items():
            path = paths.topic(name.replace(" ", "-").replace("'", ""))
            await vandal.create(path, data, make_parents=True)
        await vandal.create(paths.broker(BrokerId(7)), GARBAGE["nested"], make_parents=True)
        broker = await cloud.start_broker(1)
        await create_topic(broker)
        client = await WireClient.connect(broker.port)
        assert (await produce(client, batch(b"good"))).error_code == 0
        await client.close()
        assert list(broker.cluster.topics) == ["t"]
        assert "metadata.unreadable" in caplog.text
        assert "connection.broken" not in caplog.text
        await vandal.close()
    finally:
        await cloud.close()

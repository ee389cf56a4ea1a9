"""Fetch (API 1) by hand: versions 4 to 18.

Covers Fetch's byte layout. The answer is a list of buffers: entry payloads go into it as they came
from the ledger, uncopied, between small runs of header bytes. Compared with kio, byte for byte, in
the tests.

Request body (sessions and forgotten topics from 7, current leader epoch from 9, rack from 11,
last fetched epoch and compact lengths from 12, a topic's id instead of its name from 13, no replica
id from 15):

    replica_id int32 | max_wait_ms int32 | min_bytes int32 | max_bytes int32 | isolation int8
    | session_id int32 | session_epoch int32
    [ topic: name | [ partition: index int32 | current_leader_epoch int32 | offset int64
                      | last_fetched_epoch int32 | log_start_offset int64 | max_bytes int32 ] ]
    [ forgotten: name | [ index int32 ] ] | rack string

Response body (error and session from 7, log start from 5, preferred read replica from 11, a topic's
id instead of its name from 13):

    throttle_ms int32 | error int16 | session_id int32
    [ topic: name | [ partition: index int32 | error int16 | high_watermark int64
                      | last_stable_offset int64 | log_start_offset int64
                      | aborted transactions | preferred_read_replica int32 | records ] ]
    | node endpoints tag, from 16
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from client.errors import LocalProtocolError
from client.wire.buffer import Reader, uvarint_bytes
from client.wire.kafka.produce import (
    NodeEndpoint,
    Topic,
    count_bytes,
    endpoint_tags,
    topic_bytes,
)
from client.wire.steps import ITEMS_UNLIMITED, ItemCount, Steps, finish

Buffer = bytes | bytearray | memoryview

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
ENDPOINTS_FROM: Final = 16
_LOG_START_FROM: Final = 5
_SESSION_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
RACK_FROM: Final = 11
_NO_REPLICA_ID_FROM: Final = 15
_ID_BYTES: Final = 16

_HEAD: Final = struct.Struct(">iiiib")
_HEAD_WITH_SESSION: Final = struct.Struct(">iiiibii")
_HEAD_WITHOUT_REPLICA: Final = struct.Struct(">iiibii")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_TAGGED: Final = struct.Struct(">qqx")

# index, [current leader epoch], offset, [log start offset], max bytes
_PARTITION_4: Final = struct.Struct(">iqi")
_PARTITION_5: Final = struct.Struct(">iqqi")
_PARTITION_9: Final = struct.Struct(">iiqqi")
# index, current leader epoch, offset, last fetched epoch, log start offset, max bytes
_PARTITION_12: Final = struct.Struct(">iiqiqi")

_RESULT_4: Final = struct.Struct(">ihqq")
_RESULT_5: Final = struct.Struct(">ihqqq")

_TOPIC_BYTES_MIN: Final = 2

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
NO_REPLICA: Final = -1


class PartitionFetch(NamedTuple):
    """What a request asks of one partition."""

    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int
    """The leader epoch the client knows; -1 = do not check."""


class TopicFetch(NamedTuple):
    """What a request asks of one topic."""

    topic: Topic
    partitions: list[PartitionFetch]


class FetchRequest(NamedTuple):
    """A decoded request."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[TopicFetch]
    forgotten: list[tuple[Topic, int]]
    """Partitions that leave the session."""
    rack: str


class PartitionData(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Sequence[Buffer]
    """Whole batches, in order."""
    size: int
    """Total bytes of `records`."""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions, by offset; None = not asked for."""
    leader: tuple[int, int] | None = None
    """(leader id, leader epoch) the client should turn to; from version 12."""
    replica: int = NO_REPLICA
    """Broker that the client should read this partition from instead; from version 11."""


def parse_request(version: int, body: memoryview, items_max: int = ITEMS_UNLIMITED) -> FetchRequest:
    """Decode a request body.

    `items_max`: of its topics and partitions together, those that it forgets among them. Raises
    RemoteProtocolError.
    """
    return finish(request_steps(version, body, items_max))


def request_steps(version: int, body: memoryview, items_max: int) -> Steps[FetchRequest]:
    """Do as `parse_request`, in steps."""
    compact = version >= FLEXIBLE_FROM
    reader = Reader(body)
    session_id, session_epoch = 0, -1
    if version >= _NO_REPLICA_ID_FROM:
        head = reader.unpack(_HEAD_WITHOUT_REPLICA)
        wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch = head
    elif version >= _SESSION_FROM:
        head = reader.unpack(_HEAD_WITH_SESSION)
        _, wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch = head
    else:
        _, wait_ms, bytes_min, bytes_max, isolation = reader.unpack(_HEAD)
    layout = _partition_layout(version)
    topics: list[TopicFetch] = []
    items = ItemCount(items_max)
    for _ in range(items.add(reader.count(compact=compact, item_bytes_min=_TOPIC_BYTES_MIN))):
        if items.is_step_over():
            yield
        topic = _topic(version, reader)
        partitions: list[PartitionFetch] = []
        for _ in range(items.add(reader.count(compact=compact, item_bytes_min=layout.size))):
            if items.is_step_over():
                yield
            partitions.append(_partition(version, reader.unpack(layout)))
            if compact:
                items.add(reader.skip_tags())
        if compact:
            items.add(reader.skip_tags())
        topics.append(TopicFetch(topic, partitions))
    forgotten: list[tuple[Topic, int]] = []
    if version >= _SESSION_FROM:
        forgotten = yield from _forgotten(version, reader, items)
    rack = reader.string(compact=compact) if version >= RACK_FROM else ""
    if compact:
        items.add(reader.skip_tags())
    return FetchRequest(
        wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch, topics, forgotten, rack
    )


def _topic(version: int, reader: Reader) -> Topic:
    if version >= TOPIC_IDS_FROM:
        return UUID(bytes=bytes(reader.take(_ID_BYTES)))
    return reader.string(compact=version >= FLEXIBLE_FROM)


def _partition_layout(version: int) -> struct.Struct:
    if version >= FLEXIBLE_FROM:
        return _PARTITION_12
    if version >= _LEADER_EPOCH_FROM:
        return _PARTITION_9
    return _PARTITION_5 if version >= _LOG_START_FROM else _PARTITION_4


def _partition(version: int, values: tuple[int, ...]) -> PartitionFetch:
    if version >= FLEXIBLE_FROM:
        index, epoch, offset, _last_epoch, _log_start, bytes_max = values
    elif version >= _LEADER_EPOCH_FROM:
        index, epoch, offset, _log_start, bytes_max = values
    elif version >= _LOG_START_FROM:
        index, offset, _log_start, bytes_max = values
        epoch = -1
    else:
        index, offset, bytes_max = values
        epoch = -1
    return PartitionFetch(index, offset, bytes_max, epoch)


def _forgotten(version: int, reader: Reader, items: ItemCount) -> Steps[list[tuple[Topic, int]]]:
    compact = version >= FLEXIBLE_FROM
    found: list[tuple[Topic, int]] = []
    for _ in range(items.add(reader.count(compact=compact, item_bytes_min=_TOPIC_BYTES_MIN))):
        topic = _topic(version, reader)
        for _ in range(items.add(reader.count(compact=compact, item_bytes_min=_INT32.size))):
            if items.is_step_over():
                yield
            found.append((topic, reader.int32()))
        if compact:
            items.add(reader.skip_tags())
    return found


def build_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionData]]],
    endpoints: Sequence[NodeEndpoint] = (),
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> tuple[list[Buffer], int]:
    """Encode a response body; return its buffers and their total size.

    Record buffers are passed on as they are; everything between them is joined.
    """
    return finish(
        response_steps(
            version, topics, endpoints,
            error_code=error_code, session_id=session_id, throttle_ms=throttle_ms,
        )
    )  # fmt: skip


def response_steps(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionData]]],
    endpoints: Sequence[NodeEndpoint] = (),
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> Steps[tuple[list[Buffer], int]]:
    """Do as `build_response`, in steps.

    `endpoints`: of the leaders that partitions name. `session_id` 0: there is no session.
    """
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise LocalProtocolError(f"Fetch version {version} has no layout here")
    flexible = version >= FLEXIBLE_FROM
    out = _Joined()
    out.small(_INT32.pack(throttle_ms))
    if version >= _SESSION_FROM:
        out.small(_INT16.pack(error_code) + _INT32.pack(session_id))
    out.small(count_bytes(len(topics), flexible))
    items = ItemCount()
    for topic, partitions in topics:
        if items.is_step_over():
            yield
        out.small(topic_bytes(topic, flexible))
        out.small(count_bytes(len(partitions), flexible))
        for data in partitions:
            if items.is_step_over():
                yield
            _add_partition(out, version, data)
        if flexible:
            out.small(b"\x00")
    if flexible:
        has_endpoints = endpoints and version >= ENDPOINTS_FROM
        out.small(endpoint_tags(endpoints) if has_endpoints else b"\x00")
    return out.finish()


class _Joined:
    """Collects small pieces and large buffers; joins only the small ones."""

    __slots__ = ("buffers", "pieces", "size")

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.pieces: list[bytes] = []
        self.size = 0

    def small(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def large(self, buffers: Sequence[Buffer], size: int) -> None:
        self._join()
        self.buffers += buffers
        self.size += size

    def finish(self) -> tuple[list[Buffer], int]:
        self._join()
        return self.buffers, self.size

    def _join(self) -> None:
        if self.pieces:
            joined = b"".join(self.pieces)
            self.buffers.append(joined)
            self.size += len(joined)
            self.pieces = []


def _add_partition(out: _Joined, version: int, data: PartitionData) -> None:
    flexible = version >= FLEXIBLE_FROM
    high, stable = data.high_watermark, data.last_stable_offset
    if version >= _LOG_START_FROM:
        start = data.log_start_offset
        out.small(_RESULT_5.pack(data.partition, data.error_code, high, stable, start))
    else:
        out.small(_RESULT_4.pack(data.partition, data.error_code, high, stable))
    out.small(_aborted(data.aborted, flexible))
    if version >= RACK_FROM:
        out.small(_INT32.pack(data.replica))
    out.small(uvarint_bytes(data.size + 1) if flexible else _INT32.pack(data.size))
    if data.size:
        out.large(data.records, data.size)
    if flexible:
        if data.leader is None:
            out.small(b"\x00")
        else:
            # One tag, number 1, of nine bytes: the struct and its own empty tag count.
            out.small(b"\x01\x01\x09" + struct.pack(">ii", *data.leader) + b"\x00")


def _aborted(aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> bytes:
    if aborted is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    layout = _ABORTED_TAGGED if flexible else _ABORTED
    return count_bytes(len(aborted), flexible) + b"".join(layout.pack(*row) for row in aborted)

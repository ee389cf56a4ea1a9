"""Produce (API 0) by hand: versions 3 to 13, the hottest request of the broker.

Covers Produce's byte layout. The generic codec would copy the record bytes and build objects per
partition; here records stay views of the received frame, and the answer for one partition is one
`struct` pack. Compared with kio, byte for byte, in the tests.

Request body, version 3-8 (9-12 use compact lengths and end each struct with tagged fields):

    transactional_id nullable string | acks int16 | timeout_ms int32
    [ topic: name string, from 13 id uuid | [ partition: index int32 | records nullable bytes ] ]

Response body (fields by version: log start offset from 5, record errors and message from 8,
current leader tag from 10):

    [ topic: name or id | [ partition: index int32 | error int16 | base_offset int64
                      | log_append_time_ms int64 | log_start_offset int64
                      | record errors | error message ] ]
    throttle_time_ms int32 | node endpoints tag

Version 12 has the bytes of 11. From version 13 on topics have ids instead of names. Versions 0 to 2
carry message formats that Quire does not store; they have no layout here. Answers to Fetch name
topics and leaders (KIP-951) with the same bytes; `fetch.py` takes them from here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from client.errors import LocalProtocolError
from client.fast_tuple import new_tuple
from client.wire.buffer import Reader, uvarint_bytes
from client.wire.steps import ITEMS_UNLIMITED, STEP_ITEMS, ItemCount, Steps, finish

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
IDS_FROM: Final = 13
FLEXIBLE_FROM: Final = 9
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_LEADER_HINT_FROM: Final = 10

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_SINGLE: Final = struct.Struct(">hhiih")
"""Transactional id's length, acks, timeout, topics, name's length; then the name."""
_SINGLE_PARTITION: Final = struct.Struct(">iii")
"""Partitions, index, length of the records."""
_SINGLE_COMPACT: Final = struct.Struct(">BhiBB")
_SINGLE_COMPACT_PARTITION: Final = struct.Struct(">Bi")
_SINGLE_BY_ID: Final = struct.Struct(">BhiB16s")
"""The topic's id instead of its name's length."""
_ID_BYTES: Final = 16
_FEW: Final = struct.Struct(">hhii")
"""Transactional id's length, acks, timeout, topics."""
_FEW_COMPACT: Final = struct.Struct(">BhiB")
_INDEX_SIZE: Final = struct.Struct(">ii")
_TWO_BYTES: Final = 0x80
"""From here on a varint has a second byte."""
_NO_TAGS_AT_ALL: Final = b"\x00\x00\x00"
_RESULT: Final = struct.Struct(">ihqq")
_RESULT_WITH_START: Final = struct.Struct(">ihqqq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">ii")
_ONE: Final = _INT32.pack(1)
_NO_THROTTLE: Final = _INT32.pack(0)
_NO_ERRORS: Final = b"\x00\x00\x00\x00" + b"\xff\xff"
"""No record errors, no message."""
_NO_ERRORS_COMPACT: Final = b"\x01\x00\x00"
"""The same, no tags of the partition."""
_STORED_TAIL: Final = b"\x00\x00\x00\x00" + b"\xff\xff" + _NO_THROTTLE
"""No record errors, no message; no throttling."""
_STORED_TAIL_COMPACT: Final = b"\x01\x00\x00" + b"\x00" + _NO_THROTTLE + b"\x00"
"""The same, no tags of the partition, the topic and the response."""

# Least sizes: an index, an empty length and (flexible) a tag count; and a topic around it.
_PARTITION_BYTES_MIN: Final = 5
_TOPIC_BYTES_MIN: Final = 2

Topic = str | UUID
"""How requests name topics: by name, or in newer versions by id."""


class NodeEndpoint(NamedTuple):
    """Where a leader that an answer names can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


class TopicRecords(NamedTuple):
    """What a request brings for one topic."""

    topic: Topic
    partitions: list[tuple[int, memoryview | None]]
    """(partition index, records)."""


class ProduceRequest(NamedTuple):
    """A decoded request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class PartitionResult(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: tuple[int, int] | None = None
    """(leader id, leader epoch) that the client should turn to; from version 10."""
    record_errors: tuple[int, ...] = ()
    """Which records of the batch are to blame, each with the text of `error_message`; from
    version 8 (KIP-467)."""


def parse_request(
    version: int, body: memoryview, items_max: int = ITEMS_UNLIMITED
) -> ProduceRequest:
    """Decode a request body; records are views of `body`.

    `items_max`: of its topics and partitions together. Raises RemoteProtocolError.
    """
    found = parse_single(version, body) or parse_few(version, body, items_max)
    return finish(request_steps(version, body, items_max)) if found is None else found


def parse_single(version: int, body: memoryview) -> ProduceRequest | None:
    """Decode what small requests look like: one batch for one partition, in no transaction.

    None for anything else, bad bytes included: it costs less than half of the general way, which
    says what is wrong.
    """
    try:
        if version < FLEXIBLE_FROM:
            no_id, acks, timeout_ms, topics, size = _SINGLE.unpack_from(body)
            at = _SINGLE.size + size
            topic: Topic = str(body[_SINGLE.size : at], "utf-8")
            partitions, index, size = _SINGLE_PARTITION.unpack_from(body, at)
            at += _SINGLE_PARTITION.size
            is_single = (no_id, topics, partitions) == (-1, 1, 1)
        else:
            if version < IDS_FROM:
                no_id, acks, timeout_ms, topics, size = _SINGLE_COMPACT.unpack_from(body)
                at = _SINGLE_COMPACT.size + size - 1
                topic = str(body[_SINGLE_COMPACT.size : at], "utf-8") if size < _TWO_BYTES else ""
            else:
                no_id, acks, timeout_ms, topics, topic_id = _SINGLE_BY_ID.unpack_from(body)
                at = _SINGLE_BY_ID.size
                topic = UUID(bytes=topic_id)
            partitions, index = _SINGLE_COMPACT_PARTITION.unpack_from(body, at)
            at += _SINGLE_COMPACT_PARTITION.size
            low, high = body[at], body[at + 1]
            # Two bytes of length: batches of 128 bytes to 16 KiB. No tags behind the records.
            size = (low & 0x7F) + (high << 7) - 1
            at += 2
            is_single = (
                (no_id, topics, partitions) == (0, 2, 2)
                and low >= 0x80 > high
                and bytes(body[at + size : at + size + 4]) == _NO_TAGS_AT_ALL
            )
        if not is_single or not topic or size < 0 or at + size > len(body):
            return None
        records = body[at : at + size]
        found = new_tuple(TopicRecords, (topic, [(index, records)]))
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    request: ProduceRequest = new_tuple(ProduceRequest, (None, acks, timeout_ms, [found]))
    return request


def parse_few(version: int, body: memoryview, items_max: int) -> ProduceRequest | None:
    """Decode a request that is in no transaction, of so few topics and partitions that they take
    one step; at most `items_max`.

    None for anything else, bad bytes included: it costs a third of the general way.
    """
    compact = version >= FLEXIBLE_FROM
    left = min(items_max, STEP_ITEMS - 1)
    topics: list[TopicRecords] = []
    try:
        if compact:
            no_id, acks, timeout_ms, count = _FEW_COMPACT.unpack_from(body)
            at, count = _FEW_COMPACT.size, count - 1
        else:
            no_id, acks, timeout_ms, count = _FEW.unpack_from(body)
            at = _FEW.size
        left -= count
        # One byte of a compact length or count says all if it is below 128; 0 would be null.
        if no_id != (0 if compact else -1) or not 0 <= count < _TWO_BYTES - 1 or left < 0:
            return None
        for _ in range(count):
            topic, partition_count, at = (
                _few_names(body, at, compact=compact) if version < IDS_FROM else _few_ids(body, at)
            )
            left -= partition_count
            if left < 0:
                return None
            partitions, at = _few_partitions(body, at, partition_count, compact=compact)
            topics.append(new_tuple(TopicRecords, (topic, partitions)))
        if compact:
            at = _no_tags(body, at)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if at != len(body):
        return None
    request: ProduceRequest = new_tuple(ProduceRequest, (None, acks, timeout_ms, topics))
    return request


def _few_ids(body: memoryview, at: int) -> tuple[Topic, int, int]:
    """Do as `_few_names` where topics have ids."""
    end = at + _ID_BYTES
    count = body[end] - 1
    if not 0 <= count < _TWO_BYTES - 1:
        raise IndexError
    return UUID(bytes=bytes(body[at:end])), count, end + 1


def _few_names(body: memoryview, at: int, *, compact: bool) -> tuple[Topic, int, int]:
    """Return a topic's name, how many partitions it has, and where they begin. Raises as
    `_few_partitions`, and UnicodeDecodeError."""
    if compact:
        size = body[at] - 1
        at += 1
    else:
        (size,) = _INT16.unpack_from(body, at)
        at += _INT16.size
    end = at + size
    if compact:
        count, begin = body[end] - 1, end + 1
    else:
        (count,) = _INT32.unpack_from(body, end)
        begin = end + _INT32.size
    if not 0 <= size < _TWO_BYTES - 1 or not 0 <= count < _TWO_BYTES - 1:
        raise IndexError
    return str(body[at:end], "utf-8"), count, begin


def _no_tags(body: memoryview, at: int) -> int:
    """Return where a struct without tagged fields ends. Raises IndexError for one with some."""
    if body[at]:
        raise IndexError
    return at + 1


def _few_partitions(
    body: memoryview, at: int, count: int, *, compact: bool
) -> tuple[list[tuple[int, memoryview | None]], int]:
    """Return (index, records) of a topic's partitions, and where they end. Raises IndexError or
    struct.error for what `parse_few` leaves to others."""
    partitions: list[tuple[int, memoryview | None]] = []
    for _ in range(count):
        if compact:
            (index,) = _INT32.unpack_from(body, at)
            low, middle, high = body[at + 4], body[at + 5], body[at + 6]
            # Two or three bytes of length, for 128 bytes to 2 MB.
            if low < _TWO_BYTES:
                raise IndexError
            at += 6
            size = (low & 0x7F) + (middle << 7) - 1
            if middle >= _TWO_BYTES:
                if high >= _TWO_BYTES:
                    raise IndexError
                at += 1
                size += (high << 14) - (_TWO_BYTES << 7)
        else:
            index, size = _INDEX_SIZE.unpack_from(body, at)
            at += _INDEX_SIZE.size
            if size < 0:
                raise IndexError
        end = at + size
        records = body[at:end]
        if len(records) != size:
            raise IndexError
        partitions.append((index, records))
        at = _no_tags(body, end) if compact else end
    return partitions, _no_tags(body, at) if compact else at


def request_steps(version: int, body: memoryview, items_max: int) -> Steps[ProduceRequest]:
    """Do as `parse_request`, in steps."""
    compact = version >= FLEXIBLE_FROM
    reader = Reader(body)
    transactional_id = reader.nullable_string(compact=compact)
    acks, timeout_ms = reader.unpack(_ACKS_TIMEOUT)
    topics: list[TopicRecords] = []
    items = ItemCount(items_max)
    for _ in range(items.add(reader.count(compact=compact, item_bytes_min=_TOPIC_BYTES_MIN))):
        if items.is_step_over():
            yield
        topic: Topic = (
            UUID(bytes=bytes(reader.take(_ID_BYTES)))
            if version >= IDS_FROM
            else reader.string(compact=compact)
        )
        partitions: list[tuple[int, memoryview | None]] = []
        count = reader.count(compact=compact, item_bytes_min=_PARTITION_BYTES_MIN)
        for _ in range(items.add(count)):
            if items.is_step_over():
                yield
            index = reader.int32()
            partitions.append((index, reader.nullable_bytes(compact=compact)))
            if compact:
                items.add(reader.skip_tags())
        if compact:
            items.add(reader.skip_tags())
        topics.append(TopicRecords(topic, partitions))
    if compact:
        items.add(reader.skip_tags())
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def build_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionResult]]],
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> bytes:
    """Encode a response body."""
    return finish(response_steps(version, topics, endpoints, throttle_ms))


def response_steps(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionResult]]],
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> Steps[bytes]:
    """Do as `build_response`, in steps."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise LocalProtocolError(f"Produce version {version} has no layout here")
    flexible = version >= FLEXIBLE_FROM
    parts = [count_bytes(len(topics), flexible)]
    items = ItemCount()
    for topic, results in topics:
        if items.is_step_over():
            yield
        parts.append(topic_bytes(topic, flexible))
        parts.append(count_bytes(len(results), flexible))
        for result in results:
            if items.is_step_over():
                yield
            _add_result(parts, version, result)
        if flexible:
            parts.append(b"\x00")
    parts.append(_INT32.pack(throttle_ms))
    if flexible:
        if endpoints and version >= _LEADER_HINT_FROM:
            parts.append(endpoint_tags(endpoints))
        else:
            parts.append(b"\x00")
    return b"".join(parts)


def stored_response(
    version: int,
    topic: Topic,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """Encode the response body for one batch that is stored: the same as `build_response`."""
    if version >= FLEXIBLE_FROM:
        head = b"\x02" + topic_bytes(topic, True) + b"\x02"
        tail = _STORED_TAIL_COMPACT
    else:
        head = _ONE + topic_bytes(topic, False) + _ONE
        tail = _NO_THROTTLE if version < _RECORD_ERRORS_FROM else _STORED_TAIL
    if version < _LOG_START_FROM:
        return head + _RESULT.pack(partition, 0, base_offset, log_append_time_ms) + tail
    result = _RESULT_WITH_START.pack(
        partition, 0, base_offset, log_append_time_ms, log_start_offset
    )
    return head + result + tail


def all_stored_response(
    version: int, topics: Sequence[tuple[Topic, Sequence[tuple[int, int, int, int]]]]
) -> bytes:
    """Encode the response body where every batch is stored: the same as `build_response`.

    By topic: partition, base offset, time of appending and log start offset of each.
    """
    flexible = version >= FLEXIBLE_FROM
    tail = b"" if version < _RECORD_ERRORS_FROM else _NO_ERRORS_COMPACT if flexible else _NO_ERRORS
    parts = [count_bytes(len(topics), flexible)]
    for topic, results in topics:
        parts += (topic_bytes(topic, flexible), count_bytes(len(results), flexible))
        for partition, base_offset, append_ms, start_offset in results:
            if version < _LOG_START_FROM:
                parts.append(_RESULT.pack(partition, 0, base_offset, append_ms))
            else:
                parts += (
                    _RESULT_WITH_START.pack(partition, 0, base_offset, append_ms, start_offset),
                    tail,
                )
        if flexible:
            parts.append(b"\x00")
    parts.append(_NO_THROTTLE + b"\x00" if flexible else _NO_THROTTLE)
    return b"".join(parts)


def _add_result(parts: list[bytes], version: int, result: PartitionResult) -> None:
    partition, code, base_offset, append_ms, start_offset, message, leader, to_blame = result
    if version < _LOG_START_FROM:
        parts.append(_RESULT.pack(partition, code, base_offset, append_ms))
        return
    parts.append(_RESULT_WITH_START.pack(partition, code, base_offset, append_ms, start_offset))
    if version < _RECORD_ERRORS_FROM:
        return
    flexible = version >= FLEXIBLE_FROM
    text = _nullable_string(message, flexible)
    if to_blame:
        parts.append(count_bytes(len(to_blame), flexible))
        tags = b"\x00" if flexible else b""
        for index in to_blame:
            parts += (_INT32.pack(index), text, tags)
        parts.append(text)
    else:
        parts += (b"\x01" if flexible else b"\x00\x00\x00\x00", text)
    if not flexible:
        return
    if leader is None or version < _LEADER_HINT_FROM:
        parts.append(b"\x00")
    else:
        # One tag, number 0, of nine bytes: the struct and its own empty tag count.
        parts += (b"\x01\x00\x09", _LEADER.pack(*leader), b"\x00")


def _nullable_string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    data = text.encode()
    return (uvarint_bytes(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def count_bytes(count: int, flexible: bool) -> bytes:
    """Encode the length of an array; in flexible versions it is a varint, one more than it is."""
    return uvarint_bytes(count + 1) if flexible else _INT32.pack(count)


def topic_bytes(topic: Topic, flexible: bool) -> bytes:
    """Encode what a row of an answer is about: the topic's name, or its id."""
    if isinstance(topic, UUID):
        return topic.bytes
    text = topic.encode()
    return (uvarint_bytes(len(text) + 1) if flexible else _INT16.pack(len(text))) + text


def endpoint_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the tag section that carries nothing but node endpoints (tag 0)."""
    parts = [uvarint_bytes(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        host_text = host.encode()
        parts += (_INT32.pack(node_id), uvarint_bytes(len(host_text) + 1), host_text)
        parts.append(_INT32.pack(port))
        if rack is None:
            parts.append(b"\x00\x00")
        else:
            rack_text = rack.encode()
            parts += (uvarint_bytes(len(rack_text) + 1), rack_text, b"\x00")
    body = b"".join(parts)
    return b"\x01\x00" + uvarint_bytes(len(body)) + body

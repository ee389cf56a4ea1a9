"""Fetch (API 1) as a client asks it: one partition per request, version 11.

Covers the request's bytes from this side; `fetch.py` holds the layouts. Version 11 is the last one
without compact lengths, and every broker since Kafka 2.3 has it. The records of an answer are a
view of the received bytes, not a copy.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.wire.buffer import Reader

VERSION: Final = 11

_HEAD: Final = struct.Struct(">iiiibiii")
_PARTITION: Final = struct.Struct(">iiiqqi")
_TAIL: Final = struct.Struct(">ih")
_ANSWER_HEAD: Final = struct.Struct(">ihi")
_PARTITION_HEAD: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")

_CLIENT: Final = -1
_NO_SESSION: Final = (0, -1)
_LOG_START_UNKNOWN: Final = -1


class FetchAnswer(NamedTuple):
    """What a leader answered for the one partition that was asked for."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions in what follows."""
    records: memoryview
    """Record batches; the last one may be cut off."""
    records_at: int
    """Where in the answer they begin."""
    throttle_ms: int


def encode_fetch(
    topic: str,
    partition: int,
    offset: int,
    *,
    leader_epoch: int,
    wait_ms_max: int,
    bytes_max: int,
    read_committed: bool,
) -> bytes:
    """Encode the body of a request for one partition; `leader_epoch` -1 = do not check."""
    name = topic.encode()
    return b"".join(
        (
            _HEAD.pack(_CLIENT, wait_ms_max, 1, bytes_max, read_committed, *_NO_SESSION, 1),
            struct.pack(">h", len(name)),
            name,
            _PARTITION.pack(
                1, partition, leader_epoch, offset, _LOG_START_UNKNOWN, bytes_max
            ),
            _TAIL.pack(0, 0),  # nothing forgotten, no rack
        )
    )  # fmt: skip


def decode_fetch(body: memoryview) -> FetchAnswer:
    """Decode an answer to `encode_fetch`. Raises RemoteProtocolError.

    An error of the whole request is told as the partition's. An answer without the partition is
    what a broker sends to a client that it throttles: no error and no records.
    """
    reader = Reader(body)
    throttle_ms, error_code, _session = reader.unpack(_ANSWER_HEAD)
    nothing = FetchAnswer(error_code, -1, -1, -1, [], body[:0], 0, throttle_ms)
    topic_count = reader.int32()
    if error_code or not topic_count:
        return nothing
    reader.string(compact=False)
    partition_count = reader.int32()
    if topic_count != 1 or partition_count > 1:
        raise RemoteProtocolError("a fetch answer names more than the one partition asked for")
    if not partition_count:
        return nothing
    _index, error_code, high, stable, start = reader.unpack(_PARTITION_HEAD)
    aborted = []
    for _ in range(max(0, reader.int32())):
        producer_id, first_offset = reader.unpack(_ABORTED)
        aborted.append((producer_id, first_offset))
    reader.int32()  # the preferred read replica
    size = max(0, reader.int32())
    at = reader.position
    return FetchAnswer(error_code, high, stable, start, aborted, reader.take(size), at, throttle_ms)

"""One blocking connection to one broker.

Spark's hooks and tasks are plain synchronous programs that do one thing at a time, so this is
too: a request goes out, its answer comes in. Any failure closes the connection; the callers
(`kafka_cluster.py`, `read/broker_fetch.py`, `write/task_producer.py`) decide where to ask next.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Final

from client.errors import RemoteProtocolError
from client.wire.kafka.apis import ApiKey, schema_versions
from client.wire.kafka.requests import (
    decode_response_body,
    encode_request_body,
    request_frame,
    split_response,
)
from client.wire.reused_buffers import ReusedBuffers

CLIENT_ID: Final = "quire-spark"
ANSWER_BYTES_MAX: Final = 256 << 20
"""A longer answer is taken for something that is not Kafka."""

_SIZE: Final = struct.Struct(">i")
_RECEIVE_BYTES: Final = 1 << 20
_REUSED_BYTES_MIN: Final = 128 << 10
"""Smaller answers are received into memory of their own."""
_BUFFERS_MAX: Final = 6
"""Of large answers: one is being received, one decoded, and those between (`prefetch.AHEAD`)."""
_UNSUPPORTED_VERSION: Final = 35
_API_VERSIONS_PLAIN: Final = 0


class LinkBroken(Exception):
    """The connection cannot be used any more: refused, reset, silent, or not Kafka."""


class KafkaLink:
    """A connection to `host:port`, open from the start. Raises LinkBroken in every method."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise LinkBroken(f"{self.address}: {error.strerror or error}") from error
        self._buffers = ReusedBuffers(_BUFFERS_MAX)
        self._versions: dict[int, tuple[int, int]] = {}
        answer = self.ask(ApiKey.API_VERSIONS, {}, timeout_s, version=_API_VERSIONS_PLAIN)
        for row in answer.api_keys:
            self._versions[int(row.api_key)] = (int(row.min_version), int(row.max_version))

    def close(self) -> None:
        """Close; whatever was under way is lost, also for a thread that waits for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def offers(self, api: ApiKey) -> bool:
        """Say whether the broker has an API."""
        return api in self._versions

    def version(self, api: ApiKey, at_most: int) -> int:
        """Return the newest version of an API that the broker, our schemas and we speak."""
        ours_min, ours_max = schema_versions(api)
        low, high = self._versions.get(api, (0, -1))
        version = min(high, ours_max, at_most)
        if version < max(low, ours_min):
            raise LinkBroken(f"{self.address}: no common version of {api.name.lower()}")
        return version

    def ask(self, api: ApiKey, fields: dict[str, Any], timeout_s: float, *, version: int) -> Any:
        """Send a request and return the decoded answer, one of kio's entities."""
        answer = self.ask_raw(api, encode_request_body(api, version, fields), timeout_s, version)
        try:
            return decode_response_body(api, version, answer)
        except RemoteProtocolError as error:
            raise self._broken(str(error)) from error

    def ask_raw(
        self, api: ApiKey, body: bytes, timeout_s: float, version: int, *, room_bytes: int = 0
    ) -> memoryview:
        """Send an encoded request and return the body of its answer, and `room_bytes` more.

        What those contain means nothing; they let a decoder read beyond the end without a copy.
        """
        self._correlation_id += 1
        frame = request_frame(api, version, self._correlation_id, CLIENT_ID, body)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            padded = self._receive_frame(room_bytes)
            answer = padded[: len(padded) - room_bytes]
            correlation_id, answer_body = split_response(api, version, answer)
        except (OSError, RemoteProtocolError) as error:
            raise self._broken(str(error) or type(error).__name__) from error
        if correlation_id != self._correlation_id:
            raise self._broken("an answer to another request came")
        return padded[len(answer) - len(answer_body) :]

    def _receive_frame(self, room_bytes: int) -> memoryview:
        (size,) = _SIZE.unpack(self._receive(_SIZE.size, memoryview(bytearray(_SIZE.size))))
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise RemoteProtocolError(f"a frame of {size} bytes is not Kafka's")
        if size < _REUSED_BYTES_MIN:
            return self._receive(size, memoryview(bytearray(size + room_bytes)))
        return self._receive(size, self._buffers.take(size + room_bytes))

    def _receive(self, size: int, view: memoryview) -> memoryview:
        """Fill the first `size` bytes of a buffer; return all of it."""
        at = 0
        while at < size:
            count = self._socket.recv_into(view[at:], min(size - at, _RECEIVE_BYTES))
            if not count:
                raise OSError("the broker closed the connection")
            at += count
        return view.toreadonly()

    def _broken(self, why: str) -> LinkBroken:
        self._socket.close()
        return LinkBroken(f"{self.address}: {why}")

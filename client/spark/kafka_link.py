"""One blocking connection to one broker.

This file is the only home of sockets in the data source. Spark's tasks and planners are plain
synchronous programs that do one thing at a time, so this is too: a request goes out, its answer
comes in. Any failure closes the connection; the callers (`kafka_cluster.py`, `broker_fetch.py`)
decide where to ask next.
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

CLIENT_ID: Final = "quire-spark"
ANSWER_BYTES_MAX: Final = 256 << 20
"""A longer answer is taken for something that is not Kafka."""

_SIZE: Final = struct.Struct(">i")
_RECEIVE_BYTES: Final = 1 << 20
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
        self._versions: dict[int, tuple[int, int]] = {}
        answer = self.ask(ApiKey.API_VERSIONS, {}, timeout_s, version=_API_VERSIONS_PLAIN)
        for row in answer.api_keys:
            self._versions[int(row.api_key)] = (int(row.min_version), int(row.max_version))

    def close(self) -> None:
        """Close; whatever was under way is lost, also for a thread that waits for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

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

    def ask_raw(self, api: ApiKey, body: bytes, timeout_s: float, version: int) -> memoryview:
        """Send an encoded request and return the body of its answer."""
        self._correlation_id += 1
        frame = request_frame(api, version, self._correlation_id, CLIENT_ID, body)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            answer = self._receive_frame()
            correlation_id, answer_body = split_response(api, version, answer)
        except (OSError, RemoteProtocolError) as error:
            raise self._broken(str(error) or type(error).__name__) from error
        if correlation_id != self._correlation_id:
            raise self._broken("an answer to another request came")
        return answer_body

    def _receive_frame(self) -> memoryview:
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise RemoteProtocolError(f"a frame of {size} bytes is not Kafka's")
        return self._receive(size)

    def _receive(self, size: int) -> memoryview:
        buffer = bytearray(size)
        view = memoryview(buffer)
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

"""One blocking connection to one broker.

Spark's hooks and tasks are plain synchronous programs that do one thing at a time, so this is
too: a request goes out, its answer comes in. Any failure closes the connection; the callers
(`kafka_cluster.py`, `read/broker_fetch.py`, `write/task_producer.py`) decide where to ask next.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
import struct
import time
from typing import Any, Final

from client.errors import ConfigError, RemoteProtocolError
from client.kafka_security import PLAIN_TEXT, ClientSecurity
from client.wire.frames import ReusedBuffers
from client.wire.kafka.apis import ApiKey, schema_versions
from client.wire.kafka.requests import (
    decode_response_body,
    encode_request_body,
    request_frame,
    split_response,
)
from client.wire.kafka.sasl_client import SaslExchange

CLIENT_ID: Final = "quire-spark"
ANSWER_BYTES_MAX: Final = 256 << 20
"""A longer answer is taken for something that is not Kafka."""

_SIZE: Final = struct.Struct(">i")
_RECEIVE_BYTES: Final = 1 << 20
_REUSED_BYTES_MIN: Final = 128 << 10
"""Smaller answers are received into memory of their own."""
_BUFFERS_MAX: Final = 6
"""Of large answers: one is being received, one decoded, and those between (`prefetch.AHEAD`)."""
_API_VERSIONS_PLAIN: Final = 0
_SASL_AUTHENTICATE_AT_MOST: Final = 2
_LOGIN_SHARE: Final = 0.8
"""Of the time that a login is good for: then comes the next one."""


class LinkBroken(Exception):
    """The connection cannot be used any more: refused, reset, silent, or not Kafka."""


class KafkaLink:
    """A connection to `host:port`, open and logged in from the start. Raises LinkBroken in every
    method."""

    def __init__(
        self, host: str, port: int, timeout_s: float, security: ClientSecurity = PLAIN_TEXT
    ) -> None:
        """Also raises ConfigError: a file of the security settings cannot be read, or the login is
        refused."""
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._security = security
        self._login_s = math.inf
        """When to log in again, by the monotonic clock."""
        try:
            self._socket = _connect(host, port, timeout_s, security)
        except OSError as error:
            raise LinkBroken(f"{self.address}: {error.strerror or error}") from error
        self._buffers = ReusedBuffers(_BUFFERS_MAX)
        self._versions: dict[int, tuple[int, int]] = {}
        answer = self.ask(ApiKey.API_VERSIONS, {}, timeout_s, version=_API_VERSIONS_PLAIN)
        for row in answer.api_keys:
            self._versions[int(row.api_key)] = (int(row.min_version), int(row.max_version))
        if security.is_sasl:
            self._log_in(timeout_s)

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
        if time.monotonic() >= self._login_s:
            self._log_in(timeout_s)
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
            raise self._broken("an answer to another request arrived")
        return padded[len(answer) - len(answer_body) :]

    def _log_in(self, timeout_s: float) -> None:
        """Show who we are; again, before the login ends (KIP-368)."""
        self._login_s = math.inf
        security = self._security
        chosen = self.ask(
            ApiKey.SASL_HANDSHAKE, {"mechanism": security.mechanism}, timeout_s, version=1
        )
        if chosen.error_code:
            offered = ", ".join(chosen.mechanisms)
            raise self._not_let_in(f"{security.mechanism} is not offered, but {offered}")
        nonce = secrets.token_hex(24)
        exchange = SaslExchange(security.mechanism, security.username, security.password, nonce)
        token: bytes | None = exchange.first
        version = self.version(ApiKey.SASL_AUTHENTICATE, _SASL_AUTHENTICATE_AT_MOST)
        while token is not None:
            fields = {"auth_bytes": token}
            answer = self.ask(ApiKey.SASL_AUTHENTICATE, fields, timeout_s, version=version)
            if answer.error_code:
                raise self._not_let_in(f"user {security.username!r}: {answer.error_message}")
            try:
                token = exchange.answer(bytes(answer.auth_bytes))
            except RemoteProtocolError as error:
                raise self._broken(str(error)) from error
        lifetime = getattr(answer, "session_lifetime", None)
        if lifetime:
            self._login_s = time.monotonic() + _LOGIN_SHARE * lifetime.total_seconds()

    def _not_let_in(self, why: str) -> ConfigError:
        """Close; trying again would not help, and make the broker answer later each time."""
        self._socket.close()
        return ConfigError(f"options kafka.sasl.*: {self.address}: {why}")

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


def _connect(host: str, port: int, timeout_s: float, security: ClientSecurity) -> socket.socket:
    """Raises OSError, ConfigError."""
    plain = socket.create_connection((host, port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.is_tls:
            return security.context().wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    return plain

"""Requests in versions that aiokafka does not know, over aiokafka's connections.

aiokafka has connections, metadata and coordinators right, so those stay its business. Its requests
of transactions are all of version 0, which has neither new epochs nor members of groups; here a
request is encoded by our own codecs in the newest version that the broker of the connection and
the caller allow.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, ResponseHeader_v0

from client.wire.kafka.apis import ApiKey, is_flexible, schema_versions

_API_VERSIONS: Final = ApiKey.API_VERSIONS


class Versions(NamedTuple):
    """The versions of an API that a caller can make use of, both inclusive."""

    low: int
    high: int


class KafkaRequest:
    """A request whose version is chosen when its connection is known.

    Has what aiokafka's `Request` has. Sending raises IncompatibleBrokerVersion if the broker has
    none of the versions.
    """

    def __init__(self, api: ApiKey, fields: dict[str, Any], versions: Versions) -> None:
        self._api = api
        self._fields = fields
        self._versions = versions

    def prepare(self, offered: Mapping[int, tuple[int, int]]) -> _Prepared:
        """Return it in the newest common version."""
        low, high = offered.get(self._api, (0, -1))
        version = min(high, self._versions.high, schema_versions(self._api)[1])
        if version < max(low, self._versions.low):
            raise IncompatibleBrokerVersion(
                f"the broker offers {self._api.name} {low}-{high}, and the request needs"
                f" {self._versions.low}-{self._versions.high}"
            )
        return _Prepared(self._api, version, self._fields)


class _Prepared:
    """Has what aiokafka's `RequestStruct` has."""

    def __init__(self, api: ApiKey, version: int, fields: dict[str, Any]) -> None:
        # Imported late: a command that only wants an error of this package should not wait for it.
        from client.wire.kafka.requests import encode_request_body

        self.API_KEY = int(api)
        self.API_VERSION = version
        self._body = encode_request_body(api, version, fields)
        self.RESPONSE_TYPE = _Response(api, version)

    def build_request_header(self, correlation_id: int, client_id: str) -> Any:
        flexible = is_flexible(self.API_KEY, self.API_VERSION)
        kind = RequestHeader_v2 if flexible else RequestHeader_v1
        return kind(self, correlation_id=correlation_id, client_id=client_id)

    def encode(self) -> bytes:
        return self._body

    def parse_response_header(self, buffer: io.BytesIO) -> Any:
        header = ResponseHeader_v0.decode(buffer)
        # ApiVersions answers without tags: clients ask it before they know what brokers speak.
        if self.API_KEY != _API_VERSIONS and is_flexible(self.API_KEY, self.API_VERSION):
            _skip_tags(buffer)
        return header


class _Response:
    """Has what aiokafka's `Response` classes have; the answer is kio's entity."""

    def __init__(self, api: ApiKey, version: int) -> None:
        self._api = api
        self._version = version

    def decode(self, buffer: io.BytesIO) -> Any:
        from client.wire.kafka.requests import decode_response_body

        answer = decode_response_body(self._api, self._version, memoryview(buffer.read()))
        return Answer(self._version, answer)


class Answer(NamedTuple):
    """A decoded answer, and the version that it came in."""

    version: int
    fields: Any


def _skip_tags(buffer: io.BytesIO) -> None:
    for _ in range(_uvarint(buffer)):
        _uvarint(buffer)
        buffer.seek(_uvarint(buffer), io.SEEK_CUR)


def _uvarint(buffer: io.BytesIO) -> int:
    number = shift = 0
    while True:
        (byte,) = buffer.read(1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7

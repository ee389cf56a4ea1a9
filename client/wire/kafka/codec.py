"""Kafka requests in, Kafka responses out, for every API off the hot path.

Covers the way from a frame to a decoded request and from a handler's dictionary to a response
frame. kio's generated classes are the schema: its native reader decodes requests, `encoder.py`
writes responses from the same classes. A handler returns one dictionary for all versions: fields
that a version lacks are dropped, fields that have a default in the schema may be left out.

Field names are kio's: snake case, and without the unit that Kafka appends to durations
(`throttle_time`, `session_timeout`).

Headers: a request header v2 has tagged fields and is used exactly by flexible versions; its
client id stays a classic string. A response header v1 has tagged fields, except that ApiVersions
is always answered with header v0, so that a client which guessed a version can read the answer.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import struct
from typing import Any, Final, NamedTuple

from client.errors import RemoteProtocolError
from client.wire.buffer import Reader
from client.wire.kafka.apis import API_VERSIONS_KEY, is_flexible, request_type, response_type
from client.wire.kafka.decoder import decode, decode_steps
from client.wire.kafka.encoder import blank, encode, encode_steps
from client.wire.kafka.shapes import Fields, nested_in
from client.wire.steps import ITEMS_UNLIMITED, Steps

Buffer = bytes | bytearray | memoryview

_PEEK: Final = struct.Struct(">hhi")
_ID_BYTES: Final = struct.Struct(">h")
_ID_AT: Final = _PEEK.size + _ID_BYTES.size
"""Where the characters of a client id begin."""
_LENGTH_AND_ID: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\x00"


class RequestHeader(NamedTuple):
    """What precedes every request, and the bytes that follow it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def peek_header(frame: memoryview) -> tuple[int, int, int]:
    """Return (api key, version, correlation id): the part all header versions share."""
    if len(frame) < _PEEK.size:
        raise RemoteProtocolError(f"request of {len(frame)} bytes has no header")
    key, version, correlation_id = _PEEK.unpack_from(frame)
    return key, version, correlation_id


def read_header(frame: memoryview) -> RequestHeader:
    """Split a request into header and body. Its API and version must be known ones."""
    key, version, correlation_id = peek_header(frame)
    return RequestHeader(key, version, correlation_id, *split_header(frame, key, version))


def split_header(frame: memoryview, key: int, version: int) -> tuple[str | None, memoryview]:
    """Return (client id, body) of a request whose header begins as `peek_header` says."""
    is_compact = is_flexible(key, version)
    try:
        # A client id, and no tags: as nearly every request begins. The rest is for the reader.
        (size,) = _ID_BYTES.unpack_from(frame, _PEEK.size)
        at = _ID_AT + size
        if size >= 0 and at <= len(frame) and not (is_compact and frame[at]):
            return str(frame[_ID_AT:at], "utf-8"), frame[at + is_compact :]
    except (struct.error, IndexError, UnicodeDecodeError):
        pass  # the reader says what is wrong
    reader = Reader(frame, _PEEK.size)
    client_id = reader.nullable_string(compact=False)
    if is_compact:
        reader.skip_tags()
    return client_id, frame[reader.position :]


def decode_request(
    api_key: int, version: int, body: memoryview, items_max: int = ITEMS_UNLIMITED
) -> Any:
    """Decode a request body into kio's entity; see `decoder.decode`. Raises RemoteProtocolError."""
    return decode(request_type(api_key, version), body, items_max)


def request_steps(api_key: int, version: int, body: memoryview, items_max: int) -> Steps[Any]:
    """Do as `decode_request`, in steps."""
    return decode_steps(request_type(api_key, version), body, items_max)


def field(entity: Any, name: str, default: Any = None) -> Any:
    """Return a request field as a plain value; `default` if this version has no such field.

    Durations become int milliseconds.
    """
    value = getattr(entity, name, default)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return value


def response_head(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """Return frame length and response header for a body of `body_size` bytes."""
    if api_key != API_VERSIONS_KEY and is_flexible(api_key, version):
        return _LENGTH_AND_ID.pack(5 + body_size, correlation_id) + _NO_TAGS
    return _LENGTH_AND_ID.pack(4 + body_size, correlation_id)


def encode_response(
    api_key: int, version: int, correlation_id: int, fields: Fields
) -> list[Buffer]:
    """Encode a whole response frame, length and header included.

    Raises LocalProtocolError when a field without default is missing or a value does not fit.
    """
    body = encode_body(api_key, version, fields)
    return [response_head(api_key, version, correlation_id, len(body)), body]


def response_steps(
    api_key: int, version: int, correlation_id: int, fields: Fields
) -> Steps[list[Buffer]]:
    """Do as `encode_response`, in steps."""
    body = yield from encode_steps(response_type(api_key, version), fields)
    return [response_head(api_key, version, correlation_id, len(body)), body]


def encode_body(api_key: int, version: int, fields: Fields) -> bytes:
    """Encode a response without header, for callers that keep the bytes."""
    return encode(response_type(api_key, version), fields)


def encode_part(api_key: int, version: int, path: tuple[str, ...], fields: Fields) -> bytes:
    """Encode a struct of a response by itself: one of those in the field that `path` leads to.

    The bytes may stand in the place of the struct when the response is encoded.
    """
    return encode(_part_type(api_key, version, path), fields)


@functools.cache
def _part_type(api_key: int, version: int, path: tuple[str, ...]) -> Any:
    return nested_in(response_type(api_key, version), *path)


def encode_error(
    api_key: int, version: int, correlation_id: int, error_code: int
) -> list[Buffer] | None:
    """Encode a response that says nothing but `error_code`.

    None if this version has no error code at the top: then only closing the connection is left.
    """
    entity = response_type(api_key, version)
    if all(item.name != "error_code" for item in dataclasses.fields(entity)):
        return None
    fields = {**blank(entity), "error_code": error_code}
    return encode_response(api_key, version, correlation_id, fields)

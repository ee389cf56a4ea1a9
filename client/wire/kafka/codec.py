"""Kafka requests in, Kafka responses out, for every API off the hot path.

Covers the way from a request's body to a decoded request and from a handler's dictionary to a
response frame; headers are in `connection.py`. kio's generated classes are the schema: its native
reader decodes requests, `encoder.py` writes responses from the same classes. A handler returns one
dictionary for all versions: fields that a version lacks are dropped, fields that have a default in
the schema may be left out.

Field names are kio's: snake case, and without the unit that Kafka appends to durations
(`throttle_time`, `session_timeout`).
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from typing import Any

from client.wire.kafka.apis import request_type, response_type
from client.wire.kafka.connection import Buffer, response_head
from client.wire.kafka.decoder import decode, decode_steps
from client.wire.kafka.encoder import blank, encode, encode_steps
from client.wire.kafka.shapes import Fields, nested_in
from client.wire.steps import ITEMS_UNLIMITED, Steps


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

"""Kafka requests out, Kafka responses in: a client's side of the APIs off the hot path.

Covers a client's request header and decoding response bodies; what a broker does with the same
schemas is in `codec.py`. Fetch, where bytes matter, is by hand in `fetch_client.py`.

    frame = size int32 | api key int16 | version int16 | correlation id int32
            | client id nullable string | tags (flexible versions) | body
"""

from __future__ import annotations

import struct
from typing import Any, Final

from client.wire.buffer import Reader
from client.wire.kafka.apis import API_VERSIONS_KEY, is_flexible, request_type, response_type
from client.wire.kafka.decoder import decode
from client.wire.kafka.encoder import encode
from client.wire.kafka.shapes import Fields

_HEAD: Final = struct.Struct(">hhih")
_SIZE: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str, body: bytes
) -> bytes:
    """Put length and header before a request's body."""
    name = client_id.encode()
    tags = b"\x00" if is_flexible(api_key, version) else b""
    head = _HEAD.pack(api_key, version, correlation_id, len(name)) + name + tags
    return _SIZE.pack(len(head) + len(body)) + head + body


def encode_request_body(api_key: int, version: int, fields: Fields) -> bytes:
    """Encode a request. Raises LocalProtocolError for a missing field or a value that does not fit.

    Field names are kio's, as everywhere (`codec.py`).
    """
    return encode(request_type(api_key, version), fields)


def split_response(api_key: int, version: int, frame: memoryview) -> tuple[int, memoryview]:
    """Return (correlation id, body) of a response frame without its length.

    Raises RemoteProtocolError.
    """
    reader = Reader(frame)
    (correlation_id,) = reader.unpack(_CORRELATION_ID)
    if api_key != API_VERSIONS_KEY and is_flexible(api_key, version):
        reader.skip_tags()
    return correlation_id, frame[reader.position :]


def decode_response_body(api_key: int, version: int, body: memoryview) -> Any:
    """Decode a response into kio's entity; see `decoder.decode`. Raises RemoteProtocolError."""
    return decode(response_type(api_key, version), body)

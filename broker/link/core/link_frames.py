"""The frames of the link between two brokers: requests, answers, and the hello.

A link is a connection to the Kafka listener that carries requests with an API key of our own. It is
not announced to clients, and a broker of another kind, or of a release without links, closes the
connection. Requests have Kafka's first header version, so that one listener serves both:

    request  size i32 | api key i16 | version i16 | correlation id i32 | client id, null i16
             | kind i8 | body, defined by the kind
    answer   size i32 | correlation id i32 | status i8 | body, or the text of a refusal

The first request is the hello: it names the sender and the intended receiver. A process that was
restarted at the same address, or a broker of another cluster, refuses it.

    hello    cluster id, broker id i32, incarnation; broker id i32 and incarnation of the receiver
    text     size i16 | UTF-8
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.ids import BrokerId
from client.wire.buffer import Reader
from client.wire.kafka.apis import LINK_API_KEY

LINK_VERSION: Final = 1
HELLO_KIND: Final = 0
HELLO_ID: Final = 0
"""Correlation id of the hello; those of requests are greater."""
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
ITEMS_MAX: Final = 10_000
"""Items of one list: brokers split longer lists into several requests."""
TEXT_BYTES_MAX: Final = 1_000
"""Text of a refusal; longer ones are truncated."""

_ANSWERED: Final = 0
_REFUSED: Final = 1

_REQUEST: Final = struct.Struct(">ihhihb")
_ANSWER: Final = struct.Struct(">iib")
_ANSWER_HEAD: Final = struct.Struct(">ib")
_SIZE: Final = struct.Struct(">h")
_ID: Final = struct.Struct(">i")
_LENGTH_BYTES: Final = 4
_NO_CLIENT_ID: Final = -1


class Hello(NamedTuple):
    """The sender and the intended receiver of a link."""

    cluster_id: str
    sender: BrokerId
    sender_incarnation: str
    receiver: BrokerId
    receiver_incarnation: str


class LinkAnswer(NamedTuple):
    """An answer; `refusal` is the reason if the request was refused."""

    correlation_id: int
    body: memoryview
    refusal: str | None


def request_frame(kind: int, correlation_id: int, body: bytes) -> bytes:
    """Return the whole frame of a request."""
    size = _REQUEST.size - _LENGTH_BYTES + len(body)
    head = _REQUEST.pack(size, LINK_API_KEY, LINK_VERSION, correlation_id, _NO_CLIENT_ID, kind)
    return head + body


def split_request(body: memoryview) -> tuple[int, memoryview]:
    """Return (kind, body) of a request without its header. Raises RemoteProtocolError."""
    reader = Reader(body)
    kind = reader.int8()
    return kind, body[reader.position :]


def answer_frame(correlation_id: int, body: bytes) -> Sequence[bytes]:
    """Return the whole frame of an answer."""
    size = _ANSWER_HEAD.size + len(body)
    return (_ANSWER.pack(size, correlation_id, _ANSWERED), body)


def refusal_frame(correlation_id: int, reason: str) -> Sequence[bytes]:
    """Return the whole frame of a refusal."""
    text = text_bytes(reason[:TEXT_BYTES_MAX])
    size = _ANSWER_HEAD.size + len(text)
    return (_ANSWER.pack(size, correlation_id, _REFUSED), text)


def split_answer(frame: memoryview) -> LinkAnswer:
    """Read an answer without its size. Raises RemoteProtocolError."""
    reader = Reader(frame)
    correlation_id, status = reader.unpack(_ANSWER_HEAD)
    if status == _ANSWERED:
        return LinkAnswer(correlation_id, frame[reader.position :], None)
    if status == _REFUSED:
        return LinkAnswer(correlation_id, memoryview(b""), read_text(reader))
    raise RemoteProtocolError(f"answer with unknown status {status}")


def encode_hello(hello: Hello) -> bytes:
    """Encode a hello."""
    return b"".join(
        (
            text_bytes(hello.cluster_id),
            _ID.pack(hello.sender),
            text_bytes(hello.sender_incarnation),
            _ID.pack(hello.receiver),
            text_bytes(hello.receiver_incarnation),
        )
    )


def decode_hello(body: memoryview) -> Hello:
    """Decode a hello. Raises RemoteProtocolError."""
    reader = Reader(body)
    hello = Hello(
        read_text(reader),
        BrokerId(reader.int32()),
        read_text(reader),
        BrokerId(reader.int32()),
        read_text(reader),
    )
    end(reader)
    return hello


def text_bytes(text: str) -> bytes:
    """Encode a text of at most 32,767 bytes."""
    data = text.encode()
    return _SIZE.pack(len(data)) + data


def read_text(reader: Reader) -> str:
    """Read a text. Raises RemoteProtocolError."""
    data = reader.take(reader.int16())
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a text is not UTF-8") from error


def read_count(reader: Reader, item_bytes_min: int) -> int:
    """Read how many items follow, of at least `item_bytes_min` bytes each.

    Raises RemoteProtocolError.
    """
    count = reader.int32()
    if not 0 <= count * item_bytes_min <= reader.remaining or count > ITEMS_MAX:
        raise RemoteProtocolError(f"a list of {count} items in {reader.remaining} bytes")
    return count


def end(reader: Reader) -> None:
    """Check that nothing is left. Raises RemoteProtocolError."""
    if reader.remaining:
        raise RemoteProtocolError(f"{reader.remaining} bytes after the last field")

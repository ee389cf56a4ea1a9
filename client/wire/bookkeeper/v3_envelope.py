"""What v3 requests and responses share: operation numbers, framing, parsing.

Source: Apache BookKeeper `BookkeeperProtocol.proto`.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from client.errors import RemoteProtocolError
from client.wire.bookkeeper.messages import Buffer

VERSION: Final = 3
FIRST_BYTE: Final = 0x0A
"""Tag of the header, field 1 with a length: what every v3 frame begins with."""

READ_ENTRY: Final = 1
ADD_ENTRY: Final = 2
AUTH: Final = 5
WRITE_LAC: Final = 6
READ_LAC: Final = 7
GET_BOOKIE_INFO: Final = 8
START_TLS: Final = 9
FORCE_LEDGER: Final = 10
GET_LIST_OF_ENTRIES: Final = 11


def frame_of(message: Any) -> list[Buffer]:
    """Return a protobuf message as a frame."""
    body: bytes = message.SerializeToString()
    return [len(body).to_bytes(4, "big") + body]


def parse(message_class: Any, frame: memoryview) -> Any:
    """Parse one frame without its length. Raises RemoteProtocolError."""
    message = message_class()
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        raise RemoteProtocolError("v3 frame is not a protobuf message") from error
    if not message.IsInitialized():
        raise RemoteProtocolError("v3 frame lacks a required field")
    return message

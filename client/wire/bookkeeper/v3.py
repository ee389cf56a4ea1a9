"""BookKeeper wire version 3: protobuf envelopes matched by transaction id.

A frame holds one `Request` or `Response` of `protobuf.py`. The header comes first on the wire,
so a v3 frame begins with 0x0A. Requests and responses have a file each; this is the face of both.

Sources: Apache BookKeeper `BookkeeperProtocol.proto`, `PacketProcessorBaseV3`.
"""

from client.wire.bookkeeper.v3_envelope import (
    ADD_ENTRY,
    AUTH,
    FIRST_BYTE,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES,
    READ_ENTRY,
    READ_LAC,
    START_TLS,
    VERSION,
    WRITE_LAC,
)
from client.wire.bookkeeper.v3_requests import decode_request, encode_request
from client.wire.bookkeeper.v3_responses import decode_response, encode_response

__all__ = [
    "ADD_ENTRY",
    "AUTH",
    "FIRST_BYTE",
    "FORCE_LEDGER",
    "GET_BOOKIE_INFO",
    "GET_LIST_OF_ENTRIES",
    "READ_ENTRY",
    "READ_LAC",
    "START_TLS",
    "VERSION",
    "WRITE_LAC",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

"""Encodes where the leaders that a Produce or Fetch answer names can be reached (KIP-951)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from client.wire.buffer import uvarint_bytes

_INT32: Final = struct.Struct(">i")


class NodeEndpoint(NamedTuple):
    """Where a leader that an answer names can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def endpoint_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the tag section that carries nothing but node endpoints (tag 0)."""
    parts = [uvarint_bytes(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        host_text = host.encode()
        parts += (_INT32.pack(node_id), uvarint_bytes(len(host_text) + 1), host_text)
        parts.append(_INT32.pack(port))
        if rack is None:
            parts.append(b"\x00\x00")
        else:
            rack_text = rack.encode()
            parts += (uvarint_bytes(len(rack_text) + 1), rack_text, b"\x00")
    body = b"".join(parts)
    return b"\x01\x00" + uvarint_bytes(len(body)) + body

"""Encodes what answers to Produce and Fetch share: counts, topics, where leaders are (KIP-951)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from client.wire.buffer import uvarint_bytes

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

Topic = str | UUID
"""How requests name topics: by name, or in newer versions by id."""


class NodeEndpoint(NamedTuple):
    """Where a leader that an answer names can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def count_bytes(count: int, flexible: bool) -> bytes:
    """Encode the length of an array; in flexible versions it is a varint, one more than it is."""
    return uvarint_bytes(count + 1) if flexible else _INT32.pack(count)


def topic_bytes(topic: Topic, flexible: bool) -> bytes:
    """Encode what a row of an answer is about: the topic's name, or its id."""
    if isinstance(topic, UUID):
        return topic.bytes
    text = topic.encode()
    return (uvarint_bytes(len(text) + 1) if flexible else _INT16.pack(len(text))) + text


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

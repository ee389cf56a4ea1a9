"""Reads topics and partitions out of consumers' subscriptions and assignments.

That is all a broker looks at in these blobs. Members of protocol type `consumer` send a
subscription that starts, in all versions, with int16 version, int32 count and that many topic
names (int16 length each), and get an assignment that starts with int16 version, int32 count and
that many topics, each with its name, int32 count and that many int32 partitions. What follows
(user data, owned partitions, rack) is the assignors' business. Everybody else's blobs (Connect,
Schema Registry) are never looked into.

The coordinator depends on subscriptions; assignments are only read for people who look.

Source: Kafka's ConsumerProtocolSubscription and -Assignment schemas, version 0 being a prefix of
all later ones.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

PROTOCOL_TYPE: Final = "consumer"

TOPICS_MAX: Final = 50_000
PARTITIONS_MAX: Final = 200_000
"""Blobs that name more are treated like those that do not follow the schema: no member can have
them all, and they would be read on the loop that serves everybody."""

_HEAD: Final = struct.Struct(">hi")
_COUNT: Final = struct.Struct(">i")
_SIZE: Final = struct.Struct(">h")


def subscribed_topics(subscription: bytes) -> tuple[str, ...] | None:
    """Return the topics of a subscription, sorted; None if the bytes do not follow the schema."""
    try:
        version, count = _HEAD.unpack_from(subscription)
        if version < 0 or not 0 <= count <= min(TOPICS_MAX, len(subscription)):
            return None
        position = _HEAD.size
        topics = []
        for _ in range(count):
            (size,) = _SIZE.unpack_from(subscription, position)
            position += _SIZE.size
            name = subscription[position : position + size]
            if size < 0 or len(name) != size:
                return None
            topics.append(name.decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(sorted(set(topics)))


def assignment_bytes(assigned: Mapping[str, Sequence[int]]) -> bytes:
    """Return an assignment of version 0 without user data."""
    parts = [_HEAD.pack(0, len(assigned))]
    for name, indexes in assigned.items():
        data = name.encode()
        parts += (_SIZE.pack(len(data)), data, _COUNT.pack(len(indexes)))
        parts.append(struct.pack(f">{len(indexes)}i", *indexes))
    parts.append(_COUNT.pack(-1))
    return b"".join(parts)


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """Return topic -> partitions of an assignment; None if the bytes do not follow the schema."""
    try:
        version, count = _HEAD.unpack_from(assignment)
        if version < 0 or not 0 <= count <= min(TOPICS_MAX, len(assignment)):
            return None
        left = min(PARTITIONS_MAX, len(assignment))
        at = _HEAD.size
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(count):
            (size,) = _SIZE.unpack_from(assignment, at)
            at += _SIZE.size
            name = assignment[at : at + size]
            if size < 0 or len(name) != size:
                return None
            at += size
            (length,) = _COUNT.unpack_from(assignment, at)
            at += _COUNT.size
            if not 0 <= length <= left:
                return None
            left -= length
            found[name.decode()] = struct.unpack_from(f">{length}i", assignment, at)
            at += 4 * length
    except (struct.error, UnicodeDecodeError):
        return None
    return found

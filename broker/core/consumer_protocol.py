"""The little that a coordinator reads inside a consumer's subscription: its topics.

This file is the only home of that knowledge. Members of protocol type `consumer` hand over a
blob that starts, in all versions, with int16 version, int32 count and that many topic names
(int16 length each); what follows (user data, owned partitions, rack) is the assignors' business.
Everybody else's blobs (Connect, Schema Registry) are never looked into.

Source: Kafka's ConsumerProtocolSubscription schema, version 0 being a prefix of all later ones.
"""

from __future__ import annotations

import struct
from typing import Final

PROTOCOL_TYPE: Final = "consumer"

_HEAD: Final = struct.Struct(">hi")
_SIZE: Final = struct.Struct(">h")


def subscribed_topics(subscription: bytes) -> tuple[str, ...] | None:
    """Return the topics of a subscription, sorted; None if the bytes do not follow the schema."""
    try:
        version, count = _HEAD.unpack_from(subscription)
        if version < 0 or not 0 <= count <= len(subscription):
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

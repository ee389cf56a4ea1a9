"""Produce (API 0) as a client asks it: version 8, batches as they are.

Covers the request's bytes from this side; `produce.py` holds the layout. Version 8 is the last one
without compact lengths, and every broker since Kafka 2.4 has it. Its answer is small and decoded
like any other (`requests.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

VERSION: Final = 8

_HEAD: Final = struct.Struct(">hii")
_COUNT: Final = struct.Struct(">i")
_NAME: Final = struct.Struct(">h")
_RECORDS: Final = struct.Struct(">ii")
_NO_TRANSACTION: Final = -1


def encode_produce(
    acks: int,
    timeout_ms: int,
    topics: Mapping[str, Sequence[tuple[int, bytes]]],
    transactional_id: str | None = None,
) -> bytes:
    """Encode the body of a request. `topics`: (partition, one record batch) of each topic."""
    own = b"" if transactional_id is None else transactional_id.encode()
    own_size = _NO_TRANSACTION if transactional_id is None else len(own)
    parts = [_NAME.pack(own_size), own, _HEAD.pack(acks, timeout_ms, len(topics))]
    for topic, batches in topics.items():
        name = topic.encode()
        parts += [_NAME.pack(len(name)), name, _COUNT.pack(len(batches))]
        for partition, batch in batches:
            parts += [_RECORDS.pack(partition, len(batch)), batch]
    return b"".join(parts)

"""What requests have in common: fields, batches, the time they say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from client.wire.kafka.batches.records import Record, build_batch
from tests.integration.differential.conversation import Fields, Seen

NOW_MS = int(time.time() * 1000)
UNKNOWN_ID = UUID(int=0x1234_5678_9ABC_4DEF_8123_4567_89AB_CDEF)


def always(**fields: Any) -> Callable[[Seen, int], Fields]:
    """Return what gives these fields whatever was seen, in every version."""
    return lambda _seen, _version: fields


def batch(*values: bytes, key: bytes | None = b"k", at_ms: int = NOW_MS, **fields: Any) -> bytes:
    """Return a batch of records with one key and time, and these fields of its header."""
    return build_batch([Record(key, value, at_ms) for value in values], **fields)

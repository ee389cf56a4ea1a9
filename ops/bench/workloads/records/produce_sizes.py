"""The sizes that producers of more than one workload have."""

from __future__ import annotations

from typing import Any, Final

BATCHES: Final[dict[str, dict[str, Any]]] = {
    # What the Java producer does unless told otherwise, and what librdkafka does.
    "16 KiB batches": {"batch.size": 16_384, "linger.ms": 5},
    "1 MB batches": {"batch.size": 1_000_000, "linger.ms": 5},
}
RATE_VALUE_BYTES: Final = 1024
"""Of the records whose maximum the fixed rates are shares of."""

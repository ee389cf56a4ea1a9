"""Says which partition of an internal topic keeps a group, or a transactional id.

Clients ask for their coordinator and need not know this rule, but tools that read the topics
compute it, so it is Kafka's: Java's string hash (over UTF-16 units), made positive, modulo the
partition count.

Source: Java's String.hashCode; Kafka's Utils.abs, which maps the one int without a positive
counterpart to 0.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

_INT_BITS: Final = 0xFFFFFFFF
_INT_MIN: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Return Java's hash of a string: a signed 32-bit int."""
    units = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & _INT_BITS
    return value + 2 * _INT_MIN if value > 0x7FFFFFFF else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """Return the index of the partition that keeps a group or a transactional id."""
    value = java_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % partition_count

"""Java's hash and Kafka's way to a partition."""

from __future__ import annotations

import pytest

from broker.coordinator.core.routing import coordinator_partition, java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(1 << 31)),
        ("☃", 0x2603),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    reference = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        reference = (31 * reference + unit + (1 << 31)) % (1 << 32) - (1 << 31)
    assert java_hash(text) == reference == expected


def test_the_int_without_a_positive_counterpart() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0


def test_negative_hashes() -> None:
    name = next(name for name in ("x" * size for size in range(99)) if java_hash(name) < 0)
    assert coordinator_partition(name, 50) == -java_hash(name) % 50 == abs(java_hash(name)) % 50

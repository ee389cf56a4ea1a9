"""Numbers of things and of bytes, as people read them."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return "1 record", "2 records", "1,234 records"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(byte_count: int) -> str:
    """Return a byte count people can read: 17 bytes, 3.2 kB, 1.1 MB."""
    if byte_count < 1000:
        return count(byte_count, "byte")
    value = float(byte_count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"

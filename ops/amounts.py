"""Numbers of things, bytes and moments, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


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


def utc(ms: int, *, milliseconds: bool = False) -> str:
    """Return "2026-11-28 18:02:11", with milliseconds if asked for, or "61000000000000000 ms".

    A timestamp is whatever a producer wrote. Microseconds taken for milliseconds are the year
    58,878, which Python's dates do not know; whoever shows such a record must not stop at it.
    """
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds" if milliseconds else "seconds")

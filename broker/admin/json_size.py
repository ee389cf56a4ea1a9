"""How many values a JSON document has, before it is parsed.

Python's parser takes a large document in one go, with the whole process waiting, and sixteen
megabytes may hold eight million empty lists. Counting the marks between values takes a hundredth of
that. Text may hold such marks too; only where that could matter are strings told from the rest.
"""

from __future__ import annotations

_MARKS = (b",", b"[", b"{")


def values_at_least(body: bytes, limit: int) -> int:
    """Return a number of values that a document has, to the factor of two; if it is at most `limit`
    it may be larger than what is there.

    Each value follows a comma, an opening bracket or its name.
    """
    count = _marks(body)
    if count <= limit:
        return count
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings > 2 * limit:
        return strings
    return sum(map(_marks, plain.split(b'"')[::2]))


def _marks(data: bytes) -> int:
    return sum(map(data.count, _MARKS))

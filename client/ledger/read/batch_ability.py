"""What the batch reads of one client share: request ids, and which bookies cannot do them."""

from __future__ import annotations

from itertools import count

from client.ids import BookieId


class BatchAbility:
    """Known for the life of a client."""

    __slots__ = ("_ids", "lacking")

    def __init__(self) -> None:
        self._ids = count(1)
        self.lacking: set[BookieId] = set()
        """Bookies that are not asked for batches any more."""

    def next_id(self) -> int:
        """Return an id that no other batch read of the client has: answers are matched by it."""
        return next(self._ids)

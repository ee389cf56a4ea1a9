"""The object store as Quire uses it: immutable objects under names that are never used twice.

Nothing is decided by the answer to a `put` alone: a store that repeats a request by itself says
"exists" of what it has just stored, and one that answers too late has stored it all the same. Who
wants to know reads the object back (OWN-NAME).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final, NamedTuple, Protocol

PART_BYTES: Final = 8 << 20
"""What is sent at once: a larger piece would stall the event loop while it is handed over."""


KINDS: Final = ("put", "read", "head", "delete", "list")
"""Of requests, as they are counted."""


class ObjectInfo(NamedTuple):
    """What a store says of an object."""

    name: str
    size: int
    modified_ms: int
    """By the store's own clock."""


class Tail(NamedTuple):
    """The end of an object."""

    data: bytes
    size: int
    """Of the whole object."""


class ObjectStore(Protocol):
    """Names are paths with slashes; all methods raise StoreRefuses and StoreUnavailable."""

    requests: Counter[str]
    """Requests so far, by kind. Repetitions do not count, nor does each part of an upload."""

    @property
    def place(self) -> str:
        """Where it is, for people; without secrets."""
        ...

    async def put(self, name: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object under a new name; it is there as a whole or not at all.

        The parts, of at most `PART_BYTES`, are taken as they are sent; what they raise is raised
        here, and nothing is stored. Raises ObjectExists, though not always.
        """
        ...

    async def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end), fewer where the object ends before. Raises NoObject."""
        ...

    async def tail(self, name: str, size: int) -> Tail:
        """Return the last `size` bytes, or all of them. Raises NoObject."""
        ...

    async def head(self, name: str) -> ObjectInfo:
        """Say what there is. Raises NoObject."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object; none of that name is no error: stores do not tell."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Iterate over what is below a folder, in the order of names."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...

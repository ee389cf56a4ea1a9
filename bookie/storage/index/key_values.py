"""What keeps the index: an ordered store of keys and values; in production LevelDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Batch(Protocol):
    """Changes that happen together or not at all; of two for one key the later one holds."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        ...

    def write(self) -> None:
        """Apply the changes. Raises CorruptIndex."""
        ...


class KeyValues(Protocol):
    """An ordered store of keys and values that survives the process.

    After a power loss the newest writes may be missing, unless `flush` followed them. All
    methods raise CorruptIndex when the store is damaged.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return a value, None if the key is absent."""
        ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values, ascending, from `start` to before `stop`."""
        ...

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield keys alone."""
        ...

    def last_key(self, start: bytes, stop: bytes) -> bytes | None:
        """Return the highest key from `start` to before `stop`, None if there is none."""
        ...

    def batch(self) -> Batch:
        """Begin a batch."""
        ...

    def flush(self) -> None:
        """Return when everything written so far survives a power loss."""
        ...

    def memory_bytes(self) -> int:
        """Return about how much memory its buffers and caches take; any thread may ask."""
        ...

    def close(self) -> None:
        """Release the store."""
        ...

"""Which record of each key may be lent: order by key (`share.order=key`, a setting of ours).

    ONE-OF-KEY  Of the records of a key that a window has, the first may be lent; the others wait
                behind it, wherever they are: no two are in flight at once, and deliveries of a key
                come in the order of offsets.
    KEY-LATE    A record makes room for the next of its key when its end (accepted, archived, or
                archiving) is durable: after a takeover that lost it, it would come again, behind a
                later one.
    FREE-KEYS   What has no key waits for nobody.

Keys are known by a hash: two that have the same one wait for each other, which costs time and
nothing else. What is known is of records of the window only, so it is bounded by it. A record's key
is learned when it is read, before it is lent.
"""

from __future__ import annotations

import types
import zlib
from bisect import insort
from collections.abc import Mapping
from typing import Final

from client.errors import RemoteProtocolError
from client.wire.kafka.batches.record_spans import record_spans
from client.wire.kafka.batches.records import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    cautious_bytes_max,
    codec_of,
    decompress,
)

NO_KEYS: Final[Mapping[int, int]] = types.MappingProxyType({})


def key_hashes(batch: Buffer, header: BatchHeader) -> dict[int, int]:
    """Return offset -> hash of its key, of those records of a batch that have one.

    A batch that cannot be opened, which no client can read either, has no keys.
    """
    found: dict[int, int] = {}
    try:
        data = memoryview(batch)[HEADER_BYTES : header.size]
        body = memoryview(decompress(codec_of(header), data, cautious_bytes_max(len(data))))
        for _begin, _after, _end, _time, delta, key, _has_value in record_spans(
            body, header.record_count
        ):
            if key is not None:
                found[header.base_offset + delta] = zlib.crc32(key)
    except RemoteProtocolError:
        return found
    return found


class KeyOrder:
    """The records of one window that wait for their turn, or have it."""

    __slots__ = ("_hashes", "_queues")

    def __init__(self) -> None:
        self._hashes: dict[int, int | None] = {}
        """Offset -> hash of its key, None: it has none."""
        self._queues: dict[int, list[int]] = {}
        """Hash -> offsets, ascending; the first may be lent, or is."""

    def __len__(self) -> int:
        return len(self._hashes)

    def learn(self, first: int, last: int, hashes: Mapping[int, int]) -> None:
        """Take in the keys of [first, last]; what `hashes` leaves out has none."""
        for offset in range(first, last + 1):
            if offset in self._hashes:
                continue
            known = self._hashes[offset] = hashes.get(offset)
            if known is not None:
                insort(self._queues.setdefault(known, []), offset)

    def first_unknown(self, first: int, last: int) -> int | None:
        """Return the first of [first, last] whose key is not known."""
        return next((one for one in range(first, last + 1) if one not in self._hashes), None)

    def _is_free(self, offset: int) -> bool:
        known = self._hashes.get(offset)
        return known is None or self._queues[known][0] == offset

    def first_free(self, first: int, last: int) -> int | None:
        """Return the first of [first, last] that may be lent, or whose key is not known."""
        return next((one for one in range(first, last + 1) if self._is_free(one)), None)

    def free(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return those of [first, last] that may be lent, adjacent ones together."""
        found: list[tuple[int, int]] = []
        for offset in range(first, last + 1):
            if not self._is_free(offset):
                continue
            if found and found[-1][1] == offset - 1:
                found[-1] = found[-1][0], offset
            else:
                found.append((offset, offset))
        return found

    def leave(self, first: int, last: int) -> bool:
        """The end of these records is durable; say whether others have their turn by that."""
        is_news = False
        some = range(first, last + 1)
        for offset in some if len(some) <= len(self._hashes) else list(self._hashes):
            if offset not in some or offset not in self._hashes:
                continue
            known = self._hashes.pop(offset)
            if known is None:
                continue
            queue = self._queues[known]
            queue.remove(offset)
            if queue:
                is_news = True
            else:
                del self._queues[known]
        return is_news

    def check(self) -> None:
        """Assert the invariants."""
        queued = [offset for queue in self._queues.values() for offset in queue]
        assert len(queued) == len(set(queued))
        assert set(queued) == {one for one, known in self._hashes.items() if known is not None}
        assert all(queue == sorted(queue) and queue for queue in self._queues.values())

"""Reading the answer to "which entries of a ledger do you hold?".

    header 64: version 4 (= 0) · number of groups 4 · zeros 56
    group 24:  first start 8 · last start 8 · run size 4 · period 4

A group is runs of consecutive ids, each of one size, at equal distances (`period`, 0 for a
single run). The bookie's side is `bookie/storage/core/availability.py`.

Source: Apache BookKeeper `AvailabilityOfEntriesOfLedger`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.ids import EntryId
from client.wire.bookkeeper.messages import Buffer

_HEADER: Final = struct.Struct(">ii56x")
_GROUP: Final = struct.Struct(">qqii")
_VERSION: Final = 0


class _Group(NamedTuple):
    first: int
    last: int
    size: int
    period: int

    def holds(self, entry_id: int) -> bool:
        into = entry_id - self.first
        if self.period:
            into -= min(into // self.period, (self.last - self.first) // self.period) * self.period
        return 0 <= into < self.size


class Holdings:
    """The entries one bookie has of one ledger; as compact as it was sent."""

    def __init__(self, encoded: Buffer) -> None:
        """Raises RemoteProtocolError when the encoding is malformed."""
        if len(encoded) < _HEADER.size:
            raise RemoteProtocolError(f"a list of entries in {len(encoded)} bytes")
        version, count = _HEADER.unpack_from(encoded)
        if version != _VERSION or len(encoded) != _HEADER.size + count * _GROUP.size:
            raise RemoteProtocolError(
                f"a list of entries of version {version}: {count} groups in {len(encoded)} bytes"
            )
        self._groups = [
            _Group(*_GROUP.unpack_from(encoded, _HEADER.size + at * _GROUP.size))
            for at in range(count)
        ]
        self._firsts = [group.first for group in self._groups]

    def __contains__(self, entry_id: EntryId) -> bool:
        at = bisect_right(self._firsts, entry_id) - 1
        return at >= 0 and self._groups[at].holds(entry_id)


NOTHING: Final = Holdings(_HEADER.pack(_VERSION, 0))
"""What a bookie holds that does not know the ledger."""

"""Which entries of a ledger a bookie holds, in BookKeeper's run-length encoding.

    header 64: version 4 (= 0) · number of groups 4 · zeros 56
    group 24:  first start 8 · last start 8 · run size 4 · period 4

The sorted ids are cut into maximal runs of consecutive ids; neighbouring runs of equal size at
equal distances form one group, `period` being the distance of their starts (0 for a single run).

Source: Apache BookKeeper `AvailabilityOfEntriesOfLedger`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from client.ids import EntryId

_HEADER: Final = struct.Struct(">ii56x")
_GROUP: Final = struct.Struct(">qqii")


def encode_availability(entry_ids: Iterable[EntryId]) -> bytes:
    """Return the encoding of ascending, distinct entry ids."""
    groups: list[list[int]] = []
    for start, size in _runs(entry_ids):
        if groups:
            _, last, group_size, period = groups[-1]
            distance = start - last
            if group_size == size and period in (0, distance):
                groups[-1][1] = start
                groups[-1][3] = distance
                continue
        groups.append([start, start, size, 0])
    return _HEADER.pack(0, len(groups)) + b"".join(_GROUP.pack(*group) for group in groups)


def _runs(entry_ids: Iterable[EntryId]) -> list[tuple[int, int]]:
    """Return (start, size) of each maximal run of consecutive ids."""
    runs: list[tuple[int, int]] = []
    for entry_id in entry_ids:
        if runs and runs[-1][0] + runs[-1][1] == entry_id:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry_id, 1))
    return runs

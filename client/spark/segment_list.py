"""A partition's segment list, as far as a reader from outside needs it.

This file is the data source's only home of the JSON that brokers keep for each partition
(`broker/core/segments.py` writes it; a test holds the two together). A newer format is refused,
never guessed at.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from client.errors import RemoteProtocolError
from client.ids import LedgerId
from client.metadata.json_node import read_object, whole

_FORMAT: Final = 1


class Segment(NamedTuple):
    """One ledger as an offset range of a partition."""

    ledger_id: LedgerId
    base_offset: int | None
    """None: listed by a roll that is still under way."""
    end_offset: int | None
    """Offset after its last record; None: it is being written."""


class SegmentList(NamedTuple):
    """The ledgers of a partition, oldest first."""

    log_start_offset: int
    segments: tuple[Segment, ...]


def parse_segments(data: bytes) -> SegmentList:
    """Read the bytes of the metadata node. Raises RemoteProtocolError."""
    if not data:
        return SegmentList(0, ())
    try:
        value = read_object(data)
        if value["version"] != _FORMAT:
            raise RemoteProtocolError(f"segment list of version {value['version']}")
        if value.get("deleted"):
            return SegmentList(0, ())
        return SegmentList(
            whole(value, "log_start_offset"),
            tuple(
                Segment(
                    LedgerId(whole(item, "ledger")),
                    None if item["base_offset"] is None else whole(item, "base_offset"),
                    whole(item, "last_offset", -1) + 1 if "last_offset" in item else None,
                )
                for item in value["segments"]
            ),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteProtocolError(f"segment list is damaged: {data[:200]!r}") from error

"""What the durable bytes of a bookie's log hold: entries by their marks, and fences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bookie.storage.core.append_log import (
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    Kind,
    unpack_record_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.machine.volume import Write

_MARK = re.compile(rb"<(\d+):(\d+)>")
_FENCE = re.compile(RECORD_MAGIC + rb".{8}" + bytes([Kind.FENCE]) + rb".{19}(.{8})", re.DOTALL)
"""The record of a fence in a bookie's log, up to the ledger id."""


def mark(ledger_id: int, number: int, size: int) -> bytes:
    """Return the payload of the `number`-th thing sent to a ledger: unique, `size` or longer."""
    return b"<%d:%d>" % (ledger_id, number) + b"\xab" * max(0, size - 16)


def whole_records_bytes(run: bytearray) -> int:
    """Return where the records in a piece of log end, but for one that is cut off."""
    at = run.find(RECORD_MAGIC)
    while at >= 0:
        header = unpack_record_header(run, at) if len(run) - at >= RECORD_HEADER_BYTES else None
        if header is None or at + RECORD_HEADER_BYTES + header.size > len(run):
            return at
        at = run.find(RECORD_MAGIC, at + RECORD_HEADER_BYTES + header.size)
    return len(run)


def runs_of(writes: list[Write]) -> Iterator[bytearray]:
    """Yield what a sync made durable, what adjoins in one piece; a record that is cut off at the
    end of a piece does not count."""
    run = bytearray()
    end = -1
    for offset, data in writes:
        if data is None:
            continue
        if offset != end:
            yield run[: whole_records_bytes(run)]
            run = bytearray()
        run += data
        end = offset + len(data)
    yield run[: whole_records_bytes(run)]


def marks_in(run: bytearray) -> Iterator[tuple[int, int]]:
    """Yield (ledger id, number) of the payloads in a piece of log."""
    for match in _MARK.finditer(run):
        yield int(match[1]), int(match[2])


def fences_in(run: bytearray) -> Iterator[int]:
    """Yield the ids of the ledgers whose fences are in a piece of log."""
    for match in _FENCE.finditer(run):
        yield int.from_bytes(match[1], "big")

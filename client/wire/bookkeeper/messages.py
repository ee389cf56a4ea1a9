"""BookKeeper requests and responses as values, independent of the wire version that carries them.

Covers status codes, flags and message shapes; `v2.py` and `v3.py` turn them into bytes and back.
Sources: Apache BookKeeper 4.17 `BookieProtocol` (v2) and `BookkeeperProtocol.proto` (v3).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from client.ids import EntryId, LedgerId

Buffer = bytes | bytearray | memoryview

MASTER_KEY_BYTES: Final = 20
FRAME_BYTES_MAX: Final = 5 * 1024 * 1024
"""Largest frame either side accepts by default (`nettyMaxFrameSizeBytes`)."""

LAST_ENTRY: Final = EntryId(-1)
"""Entry id in a read that asks for the last entry the bookie has."""

ENTRY_HEADER_BYTES: Final = 32
"""ledger id 8, entry id 8, last add confirmed 8, length 8: the part every entry begins with."""


class Status(enum.IntEnum):
    """Outcome of a request, numbered as v3 does. `v2.py` holds the v2 numbers."""

    OK = 0
    NO_LEDGER = 402
    NO_ENTRY = 403
    BAD_REQUEST = 404
    IO_ERROR = 501
    UNAUTHORIZED = 502
    BAD_VERSION = 503
    FENCED = 504
    READ_ONLY = 505
    TOO_MANY_REQUESTS = 506
    UNKNOWN_LEDGER_STATE = 507


class AddRequest(NamedTuple):
    """Store one entry. `entry` is the whole envelope of `entry.py`, as received."""

    ledger_id: LedgerId
    entry_id: EntryId
    master_key: bytes
    entry: Buffer
    recovery: bool = False
    high_priority: bool = False
    deferred_sync: bool = False
    entry_rest: tuple[Buffer, ...] = ()
    """Further buffers of the same envelope, so that a sender need not join them; a decoded
    request never has any."""
    frame: tuple[Buffer, ...] = ()
    """The whole frame of a plain add in version 2, if a sender has made it: it is the same for
    every bookie. A decoded request has none."""


class ReadRequest(NamedTuple):
    """Read one entry, or the last one (`LAST_ENTRY`); `fence` first stops the ledger's writer."""

    ledger_id: LedgerId
    entry_id: EntryId
    fence: bool = False
    master_key: bytes | None = None
    high_priority: bool = False
    previous_lac: EntryId | None = None
    """Present: a long poll (v3 only)."""
    timeout_ms: int | None = None
    piggyback: bool = False


class BatchReadRequest(NamedTuple):
    """Read consecutive entries (v2 only, BP-62)."""

    ledger_id: LedgerId
    first_entry_id: EntryId
    request_id: int
    count_max: int
    size_max: int
    fence: bool = False
    master_key: bytes | None = None


class ReadLacRequest(NamedTuple):
    """Ask for the explicit LAC and the last entry (v3 only)."""

    ledger_id: LedgerId


class WriteLacRequest(NamedTuple):
    """Store an explicit LAC packet (v3 only)."""

    ledger_id: LedgerId
    lac: EntryId
    master_key: bytes
    packet: Buffer


class ForceLedgerRequest(NamedTuple):
    """Answer once everything received for the ledger is durable (v3 only)."""

    ledger_id: LedgerId


class BookieInfoRequest(NamedTuple):
    """Ask for disk capacity and free space in bytes (v3 only)."""

    total_capacity: bool
    free_space: bool


class ListEntriesRequest(NamedTuple):
    """Ask which entries of a ledger the bookie holds (v3 only)."""

    ledger_id: LedgerId


class AuthRequest(NamedTuple):
    """Authentication message of a plugin; without plugins it is answered, never required."""

    plugin: str
    payload: bytes


class StartTlsRequest(NamedTuple):
    """Switch the connection to TLS (v3 only)."""


class UnknownRequest(NamedTuple):
    """A v3 operation we do not know, or a header of another version; answered with `status`."""

    operation: int
    status: Status
    ledger_id: LedgerId = LedgerId(-1)
    entry_id: EntryId = EntryId(-1)


Request = (
    AddRequest
    | ReadRequest
    | BatchReadRequest
    | ReadLacRequest
    | WriteLacRequest
    | ForceLedgerRequest
    | BookieInfoRequest
    | ListEntriesRequest
    | AuthRequest
    | StartTlsRequest
    | UnknownRequest
)


class AddResponse(NamedTuple):
    """Answer to an add."""

    status: Status
    ledger_id: LedgerId
    entry_id: EntryId


class ReadResponse(NamedTuple):
    """Answer to a read. `entry` is the stored envelope; `max_lac` exists in v3 only.

    A v2 answer to a read of -1 echoes -1 as entry id; the true id is inside `entry`.
    """

    status: Status
    ledger_id: LedgerId
    entry_id: EntryId
    entry: Buffer | None = None
    max_lac: EntryId | None = None
    lac_update_ms: int | None = None


class BatchReadResponse(NamedTuple):
    """Answer to a batch read: a run of consecutive entries, possibly shorter than asked."""

    status: Status
    ledger_id: LedgerId
    first_entry_id: EntryId
    request_id: int
    entries: tuple[Buffer, ...] = ()


class ReadLacResponse(NamedTuple):
    """Answer to READ_LAC: explicit LAC packet and last entry, each only when there is one."""

    status: Status
    ledger_id: LedgerId
    lac_packet: Buffer | None = None
    last_entry: Buffer | None = None


class WriteLacResponse(NamedTuple):
    """Answer to WRITE_LAC."""

    status: Status
    ledger_id: LedgerId


class ForceLedgerResponse(NamedTuple):
    """Answer to FORCE_LEDGER."""

    status: Status
    ledger_id: LedgerId


class BookieInfoResponse(NamedTuple):
    """Answer to GET_BOOKIE_INFO; only the requested fields are set (bytes)."""

    status: Status
    total_capacity: int | None = None
    free_space: int | None = None


class ListEntriesResponse(NamedTuple):
    """Answer to GET_LIST_OF_ENTRIES; `availability` is BookKeeper's run-length encoding."""

    status: Status
    ledger_id: LedgerId
    availability: bytes | None = None


class AuthResponse(NamedTuple):
    """Answer to AUTH."""

    plugin: str
    payload: bytes


class StartTlsResponse(NamedTuple):
    """Answer to START_TLS: with status OK the next bytes of both sides are TLS."""

    status: Status


class ErrorResponse(NamedTuple):
    """Answer to `UnknownRequest` and START_TLS without TLS. The ids exist in v2 answers only."""

    operation: int
    status: Status
    ledger_id: LedgerId = LedgerId(-1)
    entry_id: EntryId = EntryId(-1)


Response = (
    AddResponse
    | ReadResponse
    | BatchReadResponse
    | ReadLacResponse
    | WriteLacResponse
    | ForceLedgerResponse
    | BookieInfoResponse
    | ListEntriesResponse
    | AuthResponse
    | StartTlsResponse
    | ErrorResponse
)

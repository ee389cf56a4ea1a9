"""The entry envelope: what a ledger entry looks like on the wire and on a bookie's disk.

    ledger id 8 · entry id 8 · last add confirmed 8 · length 8 · digest D · payload

All numbers are big-endian int64. `length` is the payload bytes of the ledger up to and
including this entry. The digest covers the 32 header bytes and the payload, not itself:

    type    D   digest
    CRC32   8   zlib CRC-32 as an int64
    HMAC   20   HMAC-SHA1, keyed with SHA1("mac" + password)
    CRC32C  4   Castagnoli
    DUMMY   0   nothing

Covers sealing and verifying envelopes and LAC packets, and the keys derived from a ledger's
password. Replicas of one entry are not byte-identical: recovery writes the same payload with
another last add confirmed, hence another digest.

Sources: Apache BookKeeper `DigestManager`, `MacDigestManager`, `CRC32CDigestManager`.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import crc32c

from client.errors import DigestMismatch, RemoteProtocolError
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import ENTRY_HEADER_BYTES, Buffer

_HEADER: Final = struct.Struct(">qqqq")
_IDS: Final = struct.Struct(">qq")
_INT64: Final = struct.Struct(">q")
_UINT64: Final = struct.Struct(">Q")
_UINT32: Final = struct.Struct(">I")


class DigestType(enum.IntEnum):
    """How entries of a ledger are protected; numbered as ledger metadata does."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class Entry(NamedTuple):
    """A verified entry. `payload` is a view into the received bytes."""

    ledger_id: LedgerId
    entry_id: EntryId
    lac: EntryId
    length: int
    payload: memoryview


def master_key(password: bytes) -> bytes:
    """Return the 20-byte ledger key that adds and fences carry."""
    return hashlib.sha1(b"ledger" + password).digest()  # noqa: S324  the protocol's choice


def _mac_key(password: bytes) -> bytes:
    return hashlib.sha1(b"mac" + password).digest()  # noqa: S324  the protocol's choice


def peek_ids(entry: Buffer) -> tuple[LedgerId, EntryId]:
    """Return (ledger id, entry id) of an unverified entry. Raises RemoteProtocolError if short."""
    _require_header(entry)
    ledger_id, entry_id = _IDS.unpack_from(entry)
    return LedgerId(ledger_id), EntryId(entry_id)


def peek_lac(entry: Buffer) -> EntryId:
    """Return the last add confirmed an unverified entry carries. Raises as `peek_ids`."""
    _require_header(entry)
    return EntryId(_INT64.unpack_from(entry, 16)[0])


def peek_lac_packet(packet: Buffer) -> EntryId:
    """Return the LAC inside an unverified LAC packet. Raises RemoteProtocolError if short."""
    if len(packet) < _IDS.size:
        raise RemoteProtocolError(f"LAC packet of {len(packet)} bytes is too short")
    return EntryId(_INT64.unpack_from(packet, 8)[0])


def _require_header(entry: Buffer) -> None:
    if len(entry) < ENTRY_HEADER_BYTES:
        raise RemoteProtocolError(f"entry of {len(entry)} bytes is shorter than its header")


Digest = Callable[[Iterable[Buffer]], bytes]


def _digest_crc32(parts: Iterable[Buffer]) -> bytes:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return _UINT64.pack(crc)


def _digest_crc32c(parts: Iterable[Buffer]) -> bytes:
    crc = 0
    for part in parts:
        crc = crc32c.crc32c(part, crc)
    return _UINT32.pack(crc)


def _digest_dummy(_parts: Iterable[Buffer]) -> bytes:
    return b""


def _digest_hmac(key: bytes) -> Digest:
    def digest(parts: Iterable[Buffer]) -> bytes:
        mac = hmac.new(key, digestmod=hashlib.sha1)
        for part in parts:
            mac.update(part)
        return mac.digest()

    return digest


DIGEST_BYTES: Final = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}


def _digest_of(digest_type: DigestType, password: bytes) -> Digest:
    match digest_type:
        case DigestType.CRC32:
            return _digest_crc32
        case DigestType.CRC32C:
            return _digest_crc32c
        case DigestType.DUMMY:
            return _digest_dummy
        case DigestType.HMAC:
            return _digest_hmac(_mac_key(password))


class EntryCodec:
    """Seals and opens the entries and LAC packets of one ledger."""

    __slots__ = ("_digest", "digest_type", "ledger_id", "overhead")

    def __init__(self, ledger_id: LedgerId, digest_type: DigestType, password: bytes) -> None:
        self.ledger_id = ledger_id
        self.digest_type = digest_type
        self.overhead = ENTRY_HEADER_BYTES + DIGEST_BYTES[digest_type]
        """Bytes an envelope adds to its payload."""
        self._digest = _digest_of(digest_type, password)

    def seal(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer]
    ) -> list[Buffer]:
        """Return the envelope: one buffer of header and digest, then the payload's, uncopied.

        `length` is the ledger's payload bytes including this entry's.
        """
        header = _HEADER.pack(self.ledger_id, entry_id, lac, length)
        return [header + self._digest((header, *payload)), *payload]

    def open(self, entry: Buffer, entry_id: EntryId | None) -> Entry:
        """Verify an envelope and return its parts.

        `entry_id` None skips the check of the entry id (a read of -1 asks for "the last").
        Raises DigestMismatch for too few bytes, a wrong digest or another entry's ids; the
        caller treats all of them as "this replica failed".
        """
        view = memoryview(entry)
        if len(view) < self.overhead:
            raise DigestMismatch(f"entry of {len(view)} bytes is shorter than its envelope")
        payload = view[self.overhead :]
        digest = self._digest((view[:ENTRY_HEADER_BYTES], payload))
        if not hmac.compare_digest(digest, view[ENTRY_HEADER_BYTES : self.overhead]):
            raise DigestMismatch(f"wrong digest: ledger={self.ledger_id} entry={entry_id}")
        ledger_id, found, lac, length = _HEADER.unpack_from(view)
        if ledger_id != self.ledger_id or (entry_id is not None and found != entry_id):
            raise DigestMismatch(
                f"asked for ledger={self.ledger_id} entry={entry_id},"
                f" got ledger={ledger_id} entry={found}"
            )
        return Entry(LedgerId(ledger_id), EntryId(found), EntryId(lac), length, payload)

    def seal_lac(self, lac: EntryId) -> bytes:
        """Return the explicit LAC packet: ledger id 8 · lac 8 · digest over those 16 bytes."""
        body = _IDS.pack(self.ledger_id, lac)
        return body + self._digest((body,))

    def open_lac(self, packet: Buffer) -> EntryId:
        """Verify an explicit LAC packet and return its LAC. Raises DigestMismatch."""
        view = memoryview(packet)
        if len(view) < _IDS.size:
            raise DigestMismatch(f"LAC packet of {len(view)} bytes is too short")
        digest = self._digest((view[: _IDS.size],))
        ledger_id, lac = _IDS.unpack_from(view)
        if ledger_id != self.ledger_id or not hmac.compare_digest(digest, view[_IDS.size :]):
            raise DigestMismatch(f"wrong LAC packet: ledger={self.ledger_id}")
        return EntryId(lac)

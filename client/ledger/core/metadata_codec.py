"""Bytes of a ledger's znode, exactly as Apache BookKeeper writes them.

    "BookieMetadataFormatVersion" TAB version NEWLINE body
    version 3   varint length · binary LedgerMetadataFormat           written for new ledgers
    version 2   the same message as protobuf text, without cToken     read; kept when updating
    version 1   lines of text: Qw, E, length, then one line per fragment
                `first TAB bookie TAB ...`, then `last TAB CLOSED` unless open,
                where last = -102 means in recovery                   read; kept when updating

Bytes that do not make sense raise MetadataCorrupt: nobody guesses where a ledger ends. Fields that
only another release knows are written back as they were; of text, those of the whole message.

Sources: Apache BookKeeper `LedgerMetadataSerDe`, `DataFormats.proto`.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from client.errors import IncorrectParameter, MetadataCorrupt
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    UnknownFields,
    schedule_of,
)
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.entry import DigestType

_HEADER: Final = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS_MAX: Final = 10
_VARINT_BYTES_MAX: Final = 5
_INT64_MAX: Final = (1 << 63) - 1
_V1_CLOSED: Final = "CLOSED"
_V1_IN_RECOVERY: Final = -102


def encode(metadata: LedgerMetadata) -> bytes:
    """Return the znode bytes, in the format the metadata was read in (new ledgers: 3)."""
    header = _HEADER + b"%d\n" % metadata.format_version
    match metadata.format_version:
        case 1:
            return header + _encode_lines(metadata)
        case 2:
            text = text_format.MessageToString(_to_message(metadata), as_utf8=True)
            return header + text.encode() + metadata.kept.of_ledger
        case _:
            message = _to_message(metadata)
            message.cToken = metadata.c_token
            message.MergeFromString(metadata.kept.of_ledger)
            body: bytes = message.SerializeToString()
            return header + _encode_varint(len(body)) + body


def decode(data: bytes) -> LedgerMetadata:
    """Return the metadata in a znode's bytes. Raises MetadataCorrupt."""
    version, body = _split_header(data)
    try:
        metadata = _DECODERS[version](body)
    except KeyError as error:
        raise MetadataCorrupt(f"metadata format {version} is unknown") from error
    except (DecodeError, ValueError, IndexError) as error:
        raise MetadataCorrupt(f"metadata in format {version} is malformed: {error}") from error
    _check(metadata)
    return metadata


def _split_header(data: bytes) -> tuple[int, bytes]:
    digits, newline, body = data[len(_HEADER) :].partition(b"\n")
    if not data.startswith(_HEADER) or not newline:
        raise MetadataCorrupt("metadata does not begin with its format version")
    if len(digits) > _VERSION_DIGITS_MAX or not digits.isdigit():
        raise MetadataCorrupt(f"metadata format version {digits[:20]!r} is not a number")
    return int(digits), body


def _to_message(metadata: LedgerMetadata) -> Any:
    """Return a LedgerMetadataFormat (its class is made at run time, hence Any), without cToken."""
    kept = metadata.kept
    message = protobuf.LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ackQuorumSize=metadata.ack_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=int(metadata.state),
    )
    for first_entry, ensemble in metadata.fragments:
        segment = message.segment.add(firstEntryId=first_entry, ensembleMember=ensemble)
        if first_entry in kept.of_fragments:
            segment.MergeFromString(kept.of_fragments[first_entry])
    if metadata.digest_type is not None and metadata.password is not None:
        message.digestType = int(metadata.digest_type)
        message.password = metadata.password
    if metadata.ctime_ms is not None:
        message.ctime = metadata.ctime_ms
    for key, value in metadata.custom_metadata.items():
        item = message.customMetadata.add(key=key, value=value)
        if key in kept.of_custom:
            item.MergeFromString(kept.of_custom[key])
    return message


def _decode_binary(body: bytes) -> LedgerMetadata:
    size, start = _decode_varint(body)
    if len(body) - start < size:
        raise MetadataCorrupt(f"metadata of {size} bytes ends after {len(body) - start}")
    message = protobuf.LedgerMetadataFormat()
    message.ParseFromString(body[start : start + size])
    return _from_message(message, 3, _unknown_fields(message))


def _decode_text(body: bytes) -> LedgerMetadata:
    message = protobuf.LedgerMetadataFormat()
    protobuf.parse_text(body, message)
    return _from_message(message, 2, UnknownFields(protobuf.unknown_text(body, message)))


def _unknown_fields(message: Any) -> UnknownFields:
    return UnknownFields(
        protobuf.unknown_bytes(message),
        {
            EntryId(segment.firstEntryId): kept
            for segment in message.segment
            if (kept := protobuf.unknown_bytes(segment))
        },
        {
            item.key: kept
            for item in message.customMetadata
            if (kept := protobuf.unknown_bytes(item))
        },
    )


def _from_message(message: Any, version: int, kept: UnknownFields) -> LedgerMetadata:
    if not message.IsInitialized():
        raise MetadataCorrupt(f"metadata lacks {message.FindInitializationErrors()}")
    state = LedgerState(message.state)
    closed = state is LedgerState.CLOSED
    if closed and not message.HasField("lastEntryId"):
        raise MetadataCorrupt("metadata of a closed ledger lacks the last entry")
    keyed = message.HasField("password")
    acked = "ackQuorumSize" if message.HasField("ackQuorumSize") else "quorumSize"
    return LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=getattr(message, acked),
        fragments=tuple(
            Fragment(EntryId(segment.firstEntryId), tuple(map(BookieId, segment.ensembleMember)))
            for segment in message.segment
        ),
        state=state,
        last_entry=EntryId(message.lastEntryId) if closed else NO_ENTRY,
        length=message.length if closed else 0,
        digest_type=DigestType(message.digestType) if keyed else None,
        password=message.password if keyed else None,
        ctime_ms=message.ctime if message.HasField("ctime") else None,
        custom_metadata={item.key: item.value for item in message.customMetadata},
        c_token=message.cToken,
        format_version=version,
        kept=kept,
    )


def _encode_lines(metadata: LedgerMetadata) -> bytes:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(metadata.length)]
    lines += ["\t".join((str(first), *ensemble)) for first, ensemble in metadata.fragments]
    match metadata.state:
        case LedgerState.OPEN:
            lines.append("")
        case LedgerState.IN_RECOVERY:
            lines.append(f"{_V1_IN_RECOVERY}\t{_V1_CLOSED}")
        case LedgerState.CLOSED:
            lines.append(f"{metadata.last_entry}\t{_V1_CLOSED}")
    return "\n".join(lines).encode()


def _decode_lines(body: bytes) -> LedgerMetadata:
    write_quorum, ensemble_size, length, *rest = body.decode().rstrip("\n").split("\n")
    state, last_entry = LedgerState.OPEN, NO_ENTRY
    fragments: list[Fragment] = []
    for line in rest:
        first, *bookies = line.split("\t")
        if bookies == [_V1_CLOSED]:
            recovering = int(first) == _V1_IN_RECOVERY
            state = LedgerState.IN_RECOVERY if recovering else LedgerState.CLOSED
            last_entry = NO_ENTRY if recovering else EntryId(int(first))
            break
        fragments.append(Fragment(EntryId(int(first)), tuple(map(BookieId, bookies))))
    return LedgerMetadata(
        ensemble_size=int(ensemble_size),
        write_quorum=int(write_quorum),
        ack_quorum=int(write_quorum),
        fragments=tuple(fragments),
        state=state,
        last_entry=last_entry,
        length=int(length) if state is LedgerState.CLOSED else 0,
        format_version=1,
    )


_DECODERS: Final = {1: _decode_lines, 2: _decode_text, 3: _decode_binary}


def _check(metadata: LedgerMetadata) -> None:
    """Raise MetadataCorrupt unless quorums and fragments fit together."""
    try:
        schedule_of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    except IncorrectParameter as error:
        raise MetadataCorrupt(str(error)) from error
    if not metadata.fragments or metadata.fragments[0].first_entry != 0:
        raise MetadataCorrupt("the first fragment does not begin at entry 0")
    below = NO_ENTRY
    for first, ensemble in metadata.fragments:
        if first <= below:
            raise MetadataCorrupt(f"fragments are out of order at entry {first}")
        if len(set(ensemble)) != len(ensemble):
            raise MetadataCorrupt(f"fragment at {first} names a bookie twice")
        if len(ensemble) != metadata.ensemble_size or "" in ensemble:
            raise MetadataCorrupt(f"fragment at {first} names {len(ensemble)} bookies")
        below = first
    if max(below, metadata.last_entry, metadata.length) > _INT64_MAX:
        raise MetadataCorrupt("a number does not fit 64 bits")
    if metadata.last_entry < NO_ENTRY or metadata.length < 0:
        raise MetadataCorrupt(f"ends at {metadata.last_entry}, {metadata.length} bytes long")


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode_varint(data: bytes) -> tuple[int, int]:
    """Return (value, bytes used)."""
    value = 0
    for index, byte in enumerate(data[:_VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, index + 1
    raise MetadataCorrupt("metadata length is not a varint")

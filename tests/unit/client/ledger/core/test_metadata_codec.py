"""The three formats of a ledger's znode."""

from __future__ import annotations

import pytest

from client.errors import MetadataCorrupt
from client.ids import NO_ENTRY, BookieId, EntryId
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.entry import DigestType

B1, B2, B3 = (BookieId(f"b{i}:3181") for i in range(1, 4))
V3 = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a3b08021003180020ffffffffffffffff"
    "ff012801321d0a0762313a333138310a0762323a333138310a0762333a333138311000380342004802"
    "60d209"
)
V2 = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 1234
lastEntryId: 41
state: CLOSED
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b2:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 0
}
segment { ensembleMember: "b3:3181" ensembleMember: 'b2:3181'
  ensembleMember: "b1:3181" firstEntryId: 7 }
digestType: CRC32
password: "p\\303\\244ss"
ackQuorumSize: 2
customMetadata {
  key: "application"
  value: "pulsar"
}
"""
V1 = b"BookieMetadataFormatVersion\t1\n2\n3\n99\n0\tb1:3181\tb2:3181\tb3:3181\n"


def example() -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        fragments=(Fragment(EntryId(0), (B1, B2, B3)),),
        digest_type=DigestType.CRC32C,
        password=b"",
        c_token=1234,
    )


def test_format_3_as_apache_bookkeeper_writes_it() -> None:
    """Test vector: E3 Qw2 Qa2, open, CRC32C, empty password, cToken 1234."""
    assert metadata_codec.encode(example()) == V3
    assert metadata_codec.decode(V3) == example()


NEWER = b"\xa2\x06\x05newer"
"""Field 100, of a release to come: five bytes."""


def of_a_newer_release() -> bytes:
    """Two fragments and a closed end, with unknown fields in the message and all within it."""
    message = protobuf.LedgerMetadataFormat(
        quorumSize=2, ackQuorumSize=2, ensembleSize=3, length=0, state=1
    )
    for first in (0, 300):
        segment = message.segment.add(firstEntryId=first, ensembleMember=[B1, B2, B3])
        segment.MergeFromString(NEWER[:-1] + b"%d" % (first % 7))
    message.customMetadata.add(key="a", value=b"1").MergeFromString(NEWER)
    message.MergeFromString(NEWER)
    body = message.SerializeToString()
    return (
        b"BookieMetadataFormatVersion\t3\n"
        + bytes([len(body) & 0x7F | 0x80, len(body) >> 7])
        + body
    )


def test_what_a_newer_release_has_written_is_written_back() -> None:
    data = of_a_newer_release()
    ledger = metadata_codec.decode(data)
    other = BookieId("b4:3181")
    changed = (
        ledger.in_recovery()
        .with_ensemble(EntryId(300), (B1, B2, other))
        .with_ensemble(EntryId(400), (B1, B3, other))
        .closed(EntryId(500), 9)
        .with_members(EntryId(0), (B3, B2, B1))
    )
    found = metadata_codec.decode(metadata_codec.encode(changed))
    assert found.fragments == changed.fragments
    assert found.kept == ledger.kept
    assert ledger.kept.of_ledger == NEWER
    assert [*ledger.kept.of_fragments] == [0, 300]
    assert ledger.kept.of_custom == {"a": NEWER}
    assert metadata_codec.encode(metadata_codec.decode(metadata_codec.encode(changed))) == (
        metadata_codec.encode(changed)
    )


@pytest.mark.parametrize(
    ("theirs", "kept"),
    [
        (b'tier: "cold"\nplaces {\n  length: 7\n}\n', b'tier: "cold"\nplaces {\n  length: 7\n}\n'),
        (b"places {\nfirst: 7\n}\n", b"places {\nfirst: 7\n}\n"),
        (b"places {\nlength: 7\n}\n", b""),
        (b"segment {\nfirst: 7\n}\n", b""),
    ],
    ids=["as it is printed", "without indentation", "it takes a field for ours", "or ours for one"],
)
def test_lines_of_text_of_a_newer_release_are_written_back(theirs: bytes, kept: bytes) -> None:
    message = protobuf.LedgerMetadataFormat()
    text = V2.partition(b"\n")[2] + theirs
    assert protobuf.unknown_text(text, message) == kept
    if not theirs.startswith(b"segment"):
        ledger = metadata_codec.decode(V2 + theirs)
        again = metadata_codec.encode(ledger)
        assert again.endswith(kept)
        assert metadata_codec.decode(again) == ledger


def test_format_3_round_trip_of_everything() -> None:
    ledger = LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=(Fragment(EntryId(0), (B1, B2, B3)), Fragment(EntryId(300), (B2, B1, B3))),
        state=LedgerState.CLOSED,
        last_entry=EntryId(1 << 40),
        length=1 << 50,
        digest_type=DigestType.HMAC,
        password=b"\x00secret\xff",
        ctime_ms=1_700_000_000_000,
        custom_metadata={"z": b"1", "a": b"", "application": b"\x80"},
        c_token=2**63 - 1,
    )
    data = metadata_codec.encode(ledger)
    assert metadata_codec.decode(data) == ledger
    assert list(metadata_codec.decode(data).custom_metadata) == ["z", "a", "application"]


def test_updates_keep_foreign_custom_metadata_and_write_token_0() -> None:
    read = metadata_codec.decode(_v3(custom_metadata={"unknown": b"\x01\x02"}, c_token=5))
    data = metadata_codec.encode(read.in_recovery())
    again = metadata_codec.decode(data)
    assert again.custom_metadata == {"unknown": b"\x01\x02"}
    assert again.c_token == 0
    assert data.endswith(b"\x60\x00")


def test_format_2_is_read() -> None:
    ledger = metadata_codec.decode(V2)
    assert ledger.format_version == 2
    assert (ledger.ensemble_size, ledger.write_quorum, ledger.ack_quorum) == (3, 2, 2)
    assert ledger.fragments == (
        Fragment(EntryId(0), (B1, B2, B3)),
        Fragment(EntryId(7), (B3, B2, B1)),
    )
    assert (ledger.state, ledger.last_entry, ledger.length) == (LedgerState.CLOSED, 41, 1234)
    assert ledger.digest_type is DigestType.CRC32
    assert ledger.password == "päss".encode()
    assert ledger.custom_metadata == {"application": b"pulsar"}


def test_format_2_stays_2_when_updated() -> None:
    open_text = V2.replace(b"state: CLOSED", b"state: OPEN")
    updated = metadata_codec.encode(metadata_codec.decode(open_text).in_recovery())
    assert updated.startswith(b"BookieMetadataFormatVersion\t2\n")
    assert b"state: IN_RECOVERY" in updated
    assert b"cToken" not in updated
    assert metadata_codec.decode(updated).fragments == metadata_codec.decode(V2).fragments


def test_open_metadata_has_no_end_whatever_the_fields_say() -> None:
    ledger = metadata_codec.decode(V2.replace(b"state: CLOSED", b"state: OPEN"))
    assert (ledger.last_entry, ledger.length) == (NO_ENTRY, 0)


def test_absent_ack_quorum_is_the_write_quorum() -> None:
    ledger = metadata_codec.decode(V2.replace(b"ackQuorumSize: 2\n", b""))
    assert ledger.ack_quorum == 2


def test_absent_password_means_absent_digest_type() -> None:
    text = V2.replace(b'password: "p\\303\\244ss"\n', b"")
    ledger = metadata_codec.decode(text)
    assert (ledger.digest_type, ledger.password) == (None, None)
    assert b"digestType" not in metadata_codec.encode(ledger)


def test_unknown_text_fields_are_tolerated() -> None:
    assert metadata_codec.decode(V2 + b'futureField: "x"\n').last_entry == 41


@pytest.mark.parametrize(
    ("tail", "state", "last_entry", "length"),
    [
        (b"", LedgerState.OPEN, -1, 0),
        (b"-102\tCLOSED", LedgerState.IN_RECOVERY, -1, 0),
        (b"17\tCLOSED", LedgerState.CLOSED, 17, 99),
    ],
)
def test_format_1_round_trip(tail: bytes, state: LedgerState, last_entry: int, length: int) -> None:
    ledger = metadata_codec.decode(V1 + tail)
    assert (ledger.state, ledger.last_entry, ledger.length) == (state, last_entry, length)
    assert (ledger.ensemble_size, ledger.write_quorum, ledger.ack_quorum) == (3, 2, 2)
    assert ledger.digest_type is None
    again = metadata_codec.encode(ledger)
    assert again == (V1 + tail).replace(b"\n99\n", b"\n%d\n" % length)
    assert metadata_codec.decode(again) == ledger


def _v3(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "ensemble_size": 3,
        "write_quorum": 2,
        "ack_quorum": 2,
        "fragments": (Fragment(EntryId(0), (B1, B2, B3)),),
    }
    return metadata_codec.encode(LedgerMetadata(**{**fields, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        V3[:27],
        V3[:-1],
        b"BookieMetadataFormatVersion\t4\n" + V3[30:],
        b"BookieMetadataFormatVersion\tx\n" + V3[30:],
        b"BookieMetadataFormatVersion\t00000000003\n",
        b"BookieMetadataFormatVersion\t3\n",
        b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\xff\xff",
        b"BookieMetadataFormatVersion\t3\n\x02\x08\x02",
        b"BookieMetadataFormatVersion\t3\n\x02\xff\xff",
        b"BookieMetadataFormatVersion\t2\nquorumSize: many",
        b"BookieMetadataFormatVersion\t2\n\xff\xfe",
        V2.replace(b"lastEntryId: 41\n", b""),
        V2.replace(b"state: CLOSED", b"state: HALF_OPEN"),
        V2.replace(b"digestType: CRC32", b"digestType: 9"),
        V2.replace(b"firstEntryId: 7", b"firstEntryId: 0"),
        V2.replace(b"firstEntryId: 0", b"firstEntryId: 1"),
        V2.replace(b"lastEntryId: 41", b"lastEntryId: -5"),
        b"BookieMetadataFormatVersion\t1\n2\n3\n",
        V1 + b"x\tCLOSED",
        V1 + b"7",
        _v3(fragments=()),
        _v3(fragments=(Fragment(EntryId(0), (B1, B2)),)),
        _v3(fragments=(Fragment(EntryId(0), (B1, B2, BookieId(""))),)),
        _v3(write_quorum=4),
        _v3(ack_quorum=3),
        _v3(state=LedgerState.CLOSED, length=-1),
    ],
)
def test_corrupt_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        metadata_codec.decode(data)

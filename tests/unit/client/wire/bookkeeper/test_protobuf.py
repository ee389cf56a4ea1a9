"""The protobuf table: field numbers against published bytes and text."""

from __future__ import annotations

from google.protobuf import text_format

from client.wire.bookkeeper import protobuf
from tests.unit.client.wire.bookkeeper import vectors


def test_ledger_metadata_vector() -> None:
    message = protobuf.LedgerMetadataFormat(
        quorumSize=2,
        ensembleSize=3,
        length=0,
        lastEntryId=-1,
        state=1,
        digestType=3,
        password=b"",
        ackQuorumSize=2,
        cToken=1234,
    )
    segment = message.segment.add(firstEntryId=0)
    segment.ensembleMember.extend(["b1:3181", "b2:3181", "b3:3181"])
    assert message.SerializeToString() == vectors.METADATA
    assert message.ByteSize() == 0x3B


def test_cookie_text() -> None:
    cookie = protobuf.CookieFormat(
        bookieHost="10.0.0.1:3181", journalDir="/data/j", ledgerDirs="1\t/data/l", instanceId="0c1e"
    )
    assert text_format.MessageToString(cookie) == (
        'bookieHost: "10.0.0.1:3181"\n'
        'journalDir: "/data/j"\n'
        'ledgerDirs: "1\\t/data/l"\n'
        'instanceId: "0c1e"\n'
    )


def test_service_info_bytes() -> None:
    info = protobuf.BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", port=3181, host="h", protocol="bookie-rpc")
    info.properties.add(key="k", value="v")
    expected = "321a" + "0a06626f6f6b6965" + "10ed18" + "1a0168" + "220a626f6f6b69652d727063"
    assert info.SerializeToString().hex() == expected + "3a06" + "0a016b" + "120176"


def test_enum_names_are_known_to_text_format() -> None:
    text = "quorumSize: 1 ensembleSize: 1 length: 0 state: IN_RECOVERY digestType: HMAC"
    message = text_format.Parse(text, protobuf.LedgerMetadataFormat())
    assert (message.state, message.digestType) == (2, 2)

"""Entry envelopes: the published byte vectors, and refusal of everything that was altered."""

from __future__ import annotations

import hashlib

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import DigestMismatch, RemoteProtocolError
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import (
    DigestType,
    EntryCodec,
    master_key,
    peek_ids,
    peek_lac,
    peek_lac_packet,
)
from tests.unit.client.wire.bookkeeper import vectors

LEDGER = LedgerId(7)


def seal_hello(digest_type: DigestType) -> bytes:
    codec = EntryCodec(LEDGER, digest_type, b"")
    return b"".join(codec.seal(EntryId(0), NO_ENTRY, 5, [b"hel", b"lo"]))


@pytest.mark.parametrize(
    ("digest_type", "digest"),
    [
        (DigestType.DUMMY, ""),
        (DigestType.CRC32, "00000000b9e72242"),
        (DigestType.CRC32C, "9e3e717b"),
        (DigestType.HMAC, "a70e3fe637aa968c5534e0cb7fd09df244f982c6"),
    ],
)
def test_envelope_vectors(digest_type: DigestType, digest: str) -> None:
    expected = vectors.HEADER + bytes.fromhex(digest) + vectors.PAYLOAD
    assert seal_hello(digest_type) == expected
    assert len(expected) == EntryCodec(LEDGER, digest_type, b"").overhead + 5


def test_keys() -> None:
    assert master_key(b"") == vectors.KEY_EMPTY
    assert master_key(b"testPasswd") == vectors.KEY_TEST_PASSWD
    assert hashlib.sha1(b"mac").digest() == vectors.MAC_KEY_EMPTY
    assert hashlib.sha1(b"mactestPasswd").digest() == vectors.MAC_KEY_TEST_PASSWD


def test_crc32c_check_values() -> None:
    assert crc32c.crc32c(b"123456789") == 0xE3069283
    assert crc32c.crc32c(b"Some String") == 608512271


def test_lac_packet_vector() -> None:
    codec = EntryCodec(LEDGER, DigestType.CRC32C, b"")
    assert codec.seal_lac(EntryId(3)) == vectors.LAC_PACKET
    assert codec.open_lac(vectors.LAC_PACKET) == 3
    assert peek_lac_packet(vectors.LAC_PACKET) == 3


def test_payload_buffers_are_passed_through() -> None:
    part = memoryview(b"hello")
    sealed = EntryCodec(LEDGER, DigestType.CRC32C, b"").seal(EntryId(0), NO_ENTRY, 5, [part])
    assert sealed[1] is part


@pytest.mark.parametrize("digest_type", list(DigestType))
@given(st.binary(max_size=60), st.integers(0, 2**40), st.integers(-1, 2**40))
def test_round_trip(digest_type: DigestType, payload: bytes, entry_id: int, lac: int) -> None:
    codec = EntryCodec(LEDGER, digest_type, b"pw")
    sealed = b"".join(codec.seal(EntryId(entry_id), EntryId(lac), 99, [payload]))
    entry = codec.open(sealed, EntryId(entry_id))
    assert entry == (LEDGER, entry_id, lac, 99, payload)
    assert peek_ids(sealed) == (LEDGER, entry_id)
    assert peek_lac(sealed) == lac


@pytest.mark.parametrize("digest_type", [DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC])
def test_any_flipped_byte_is_found(digest_type: DigestType) -> None:
    codec = EntryCodec(LEDGER, digest_type, b"")
    sealed = seal_hello(digest_type)
    for position in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[position] ^= 0x10
        with pytest.raises(DigestMismatch):
            codec.open(damaged, None)


def test_another_entrys_bytes_are_refused() -> None:
    codec = EntryCodec(LEDGER, DigestType.CRC32C, b"")
    sealed = seal_hello(DigestType.CRC32C)
    with pytest.raises(DigestMismatch):
        codec.open(sealed, EntryId(1))
    with pytest.raises(DigestMismatch):
        EntryCodec(LedgerId(8), DigestType.CRC32C, b"").open(sealed, EntryId(0))
    assert codec.open(sealed, None).entry_id == 0


def test_wrong_password_fails_the_hmac() -> None:
    sealed = seal_hello(DigestType.HMAC)
    with pytest.raises(DigestMismatch):
        EntryCodec(LEDGER, DigestType.HMAC, b"other").open(sealed, EntryId(0))


def test_truncated_bytes_are_refused() -> None:
    codec = EntryCodec(LEDGER, DigestType.CRC32C, b"")
    for size in range(35):
        with pytest.raises(DigestMismatch):
            codec.open(vectors.ENTRY_CRC32C[:size], None)
    for size in range(20):
        with pytest.raises(DigestMismatch):
            codec.open_lac(vectors.LAC_PACKET[:size])
    with pytest.raises(DigestMismatch):
        EntryCodec(LedgerId(8), DigestType.CRC32C, b"").open_lac(vectors.LAC_PACKET)


def test_peeking_into_too_few_bytes_is_a_protocol_error() -> None:
    for peek in (peek_ids, peek_lac):
        with pytest.raises(RemoteProtocolError):
            peek(bytes(31))
    with pytest.raises(RemoteProtocolError):
        peek_lac_packet(bytes(15))

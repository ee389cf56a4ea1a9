"""Every length and count is checked against the bytes that are there."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import RemoteProtocolError
from client.wire.buffer import STRING_BYTES_MAX, Reader, uvarint_bytes


def reader(data: bytes) -> Reader:
    return Reader(memoryview(data))


def test_fixed_size_fields() -> None:
    read = reader(struct.pack(">bhiq", -1, -2, -3, -4))
    assert (read.int8(), read.int16(), read.int32(), read.int64()) == (-1, -2, -3, -4)
    assert read.remaining == 0
    for method in (read.int8, read.int16, read.int32, read.int64):
        with pytest.raises(RemoteProtocolError):
            method()


@given(st.integers(0, 2**32 - 1))
def test_uvarints_round_trip(value: int) -> None:
    encoded = uvarint_bytes(value)
    assert reader(encoded).uvarint() == value
    for end in range(len(encoded)):
        with pytest.raises(RemoteProtocolError):
            reader(encoded[:end]).uvarint()


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_are_zigzag(value: int) -> None:
    assert reader(uvarint_bytes((value << 1) ^ (value >> 31))).varint() == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_are_zigzag(value: int) -> None:
    assert reader(uvarint_bytes((value << 1) ^ (value >> 63))).varlong() == value


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\x80" * 6, b"\xff\xff\xff\xff\x1f"])
def test_uvarints_beyond_32_bits_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        reader(data).uvarint()


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\x80" * 11])
def test_varlongs_beyond_64_bits_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        reader(data).varlong()


def test_strings() -> None:
    assert reader(b"\x00\x02hi").string(compact=False) == "hi"
    assert reader(b"\x03hi").string(compact=True) == "hi"
    assert reader(b"\xff\xff").nullable_string(compact=False) is None
    assert reader(b"\x00").nullable_string(compact=True) is None


@pytest.mark.parametrize(
    ("data", "compact"),
    [
        (b"\xff\xff", False),
        (b"\x00", True),
        (b"\xff\xfehi", False),
        (b"\x00\x03hi", False),
        (b"\x04hi", True),
        (b"\x00\x02\xff\xff", False),
    ],
)
def test_broken_strings_are_refused(data: bytes, compact: bool) -> None:
    with pytest.raises(RemoteProtocolError):
        reader(data).string(compact=compact)


def test_bytes_are_views() -> None:
    data = b"\x00\x00\x00\x02hi"
    view = reader(data).nullable_bytes(compact=False)
    assert view == b"hi"
    assert view is not None
    assert view.obj is data
    assert reader(b"\xff\xff\xff\xff").nullable_bytes(compact=False) is None
    assert reader(b"\x00").nullable_bytes(compact=True) is None
    with pytest.raises(RemoteProtocolError):
        reader(b"\xff\xff\xff\xfe").nullable_bytes(compact=False)
    with pytest.raises(RemoteProtocolError):
        reader(b"\x7f\xff\xff\xffhi").nullable_bytes(compact=False)


def test_counts() -> None:
    assert reader(b"\x00\x00\x00\x02" + bytes(8)).count(compact=False, item_bytes_min=4) == 2
    assert reader(b"\x03" + bytes(8)).count(compact=True, item_bytes_min=4) == 2
    for data, compact in ((b"\xff\xff\xff\xff", False), (b"\x00", True)):
        assert reader(data).count(compact=compact, item_bytes_min=1, nullable=True) == 0
        with pytest.raises(RemoteProtocolError):
            reader(data).count(compact=compact, item_bytes_min=1)
    for data, compact in ((b"\x00\x00\x00\x03" + bytes(8), False), (b"\x04" + bytes(8), True)):
        with pytest.raises(RemoteProtocolError):
            reader(data).count(compact=compact, item_bytes_min=4)


def test_unknown_tags_are_passed_over() -> None:
    read = reader(b"\x02\x05\x01a\x80\x01\x03bcdX")
    read.skip_tags()
    assert bytes(read.take(1)) == b"X"
    for broken in (b"\x02\x05\x01a", b"\x01\x05\x09a", b"\x40\x05\x01a"):
        with pytest.raises(RemoteProtocolError):
            reader(broken).skip_tags()


def test_taking_too_much_is_refused() -> None:
    for size in (-1, 3):
        with pytest.raises(RemoteProtocolError):
            reader(b"ab").take(size)


def test_a_compact_string_is_at_most_as_long_as_a_classic_one() -> None:
    longest = b"x" * STRING_BYTES_MAX
    read = reader(uvarint_bytes(STRING_BYTES_MAX + 1) + longest).string(compact=True)
    assert len(read) == STRING_BYTES_MAX
    with pytest.raises(RemoteProtocolError, match="at most 32767"):
        reader(uvarint_bytes(STRING_BYTES_MAX + 2) + longest + b"x").nullable_string(compact=True)

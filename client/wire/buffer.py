"""A bounds-checked reader over a memoryview.

Covers length checks while decoding by hand. Every length and count that a peer sends is compared
with the bytes that are really there before anything is allocated or looped over, so a few hostile
bytes can never cost more than a few bytes' work. Strings are decoded; byte fields stay views of
the frame and are never copied.

Two families of lengths exist in the Kafka protocol: classic (int16 for strings, int32 for bytes
and arrays, -1 for null) and compact (unsigned varint of length + 1, 0 for null).

Every method raises RemoteProtocolError when the bytes are not what the layout says.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

from client.errors import RemoteProtocolError

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

UVARINT_BYTES_MAX: Final = 5
"""A 32-bit unsigned varint takes at most five bytes."""
STRING_BYTES_MAX: Final = 32_767
"""Of one string, encoded: what a classic length can say, and what Kafka's own readers take."""
UNKNOWN_TAGS_MAX: Final = 1_000
"""Tagged fields of one struct that nobody here knows; protocols have a handful."""
_VARLONG_BYTES_MAX: Final = 10


def _short(need: int, have: int) -> NoReturn:
    raise RemoteProtocolError(f"{need} bytes expected, {have} left")


class Reader:
    """A position in a buffer; every read moves it forward."""

    __slots__ = ("end", "position", "view")

    def __init__(self, view: memoryview, position: int = 0) -> None:
        self.view = view
        self.position = position
        self.end = len(view)

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self.end - self.position

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read one run of fixed-size fields."""
        position = self.position
        self.position = position + layout.size
        if self.position > self.end:
            _short(layout.size, self.end - position)
        return layout.unpack_from(self.view, position)

    def int8(self) -> int:
        """Read a signed byte."""
        return int(self.unpack(_INT8)[0])

    def int16(self) -> int:
        """Read a big-endian int16."""
        return int(self.unpack(_INT16)[0])

    def int32(self) -> int:
        """Read a big-endian int32."""
        return int(self.unpack(_INT32)[0])

    def int64(self) -> int:
        """Read a big-endian int64."""
        return int(self.unpack(_INT64)[0])

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes as a view."""
        position = self.position
        if size < 0 or position + size > self.end:
            _short(size, self.end - position)
        self.position = position + size
        return self.view[position : position + size]

    def _varint(self, bytes_max: int) -> int:
        view = self.view
        position = self.position
        last = min(position + bytes_max, self.end)
        value = shift = 0
        while position < last:
            byte = view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value
            shift += 7
        raise RemoteProtocolError("varint is cut off or too long")

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        position = self.position
        if position < self.end:
            byte = self.view[position]
            if byte < 0x80:  # nearly every length in a request
                self.position = position + 1
                return byte
        value = self._varint(UVARINT_BYTES_MAX)
        if value > 0xFFFF_FFFF:
            raise RemoteProtocolError("varint exceeds 32 bits")
        return value

    def varint(self) -> int:
        """Read a zigzag varint of at most 32 bits."""
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """Read a zigzag varint of at most 64 bits."""
        value = self._varint(_VARLONG_BYTES_MAX)
        if value > 0xFFFF_FFFF_FFFF_FFFF:
            raise RemoteProtocolError("varint exceeds 64 bits")
        return (value >> 1) ^ -(value & 1)

    def _text(self, size: int) -> str:
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("string is not UTF-8") from error

    def nullable_string(self, *, compact: bool) -> str | None:
        """Read a string that may be null, of at most `STRING_BYTES_MAX`."""
        size = self.uvarint() - 1 if compact else self.int16()
        if size < 0:
            if size < -1:
                raise RemoteProtocolError(f"string length {size}")
            return None
        if size > STRING_BYTES_MAX:
            raise RemoteProtocolError(
                f"string of {size} bytes: at most {STRING_BYTES_MAX} are allowed"
            )
        return self._text(size)

    def string(self, *, compact: bool) -> str:
        """Read a string; null is an error."""
        value = self.nullable_string(compact=compact)
        if value is None:
            raise RemoteProtocolError("string must not be null")
        return value

    def nullable_bytes(self, *, compact: bool) -> memoryview | None:
        """Read bytes that may be null, as a view."""
        size = self.uvarint() - 1 if compact else self.int32()
        if size < 0:
            if size < -1:
                raise RemoteProtocolError(f"byte field length {size}")
            return None
        return self.take(size)

    def count(self, *, compact: bool, item_bytes_min: int, nullable: bool = False) -> int:
        """Read an array's length; null counts as empty where there may be one.

        `item_bytes_min` is the least one item can take: a count that cannot fit in the bytes
        that are left is refused here, before the caller loops.
        """
        count = self.uvarint() - 1 if compact else self.int32()
        if count < 0:
            if count < -1 or not nullable:
                raise RemoteProtocolError(f"array length {count}")
            return 0
        if count * item_bytes_min > self.end - self.position:
            raise RemoteProtocolError(
                f"array of {count} items cannot fit in {self.end - self.position} bytes"
            )
        return count

    def skip_tags(self) -> int:
        """Pass over tagged fields that this decoder does not know; return how many there were.

        There may be `UNKNOWN_TAGS_MAX`.
        """
        count = self.count_tags()
        if count > UNKNOWN_TAGS_MAX:
            raise RemoteProtocolError(f"{count} unknown tagged fields")
        for _ in range(count):
            self.uvarint()
            self.take(self.uvarint())
        return count

    def count_tags(self) -> int:
        """Read the number of tagged fields; each takes at least two bytes."""
        count = self.uvarint()
        if count * 2 > self.end - self.position:
            raise RemoteProtocolError(f"{count} tagged fields cannot fit")
        return count


def uvarint_bytes(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

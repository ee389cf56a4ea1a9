"""Lines in, records out: how text becomes records for `quire produce`, and back for `consume`.

Covers the line format. A record's value is a line without its line feed; with a key separator, the
key is what stands before the first one. Bytes pass unchanged: no encoding is assumed, a carriage
return belongs to the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from client.errors import QuireError

LINE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of one line: more than any record may have, so that the record's limit is what people
meet; it only keeps a source without line feeds from filling the memory."""


class LineError(QuireError):
    """A line cannot become a record."""


class LineSplitter:
    """Cuts a stream of byte chunks into lines without their line feeds."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._partial_size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the lines they complete. Raises LineError."""
        head, line_feed, rest = chunk.partition(b"\n")
        self._partial.append(head)
        self._partial_size += len(head)
        if self._partial_size > LINE_SIZE_MAX:
            raise LineError(f"a line is longer than {LINE_SIZE_MAX:,} bytes")
        if not line_feed:
            return []
        lines = rest.split(b"\n")
        lines.insert(0, b"".join(self._partial))
        last = lines.pop()
        self._partial, self._partial_size = [last], len(last)
        return lines

    def finish(self) -> Iterator[bytes]:
        """Return the last line if the stream did not end with a line feed."""
        if self._partial_size:
            yield b"".join(self._partial)


def separator(text: str) -> bytes:
    r"""Return the key separator a person typed: `\t` is a tab. Raises LineError if empty."""
    if not text:
        raise LineError("the key separator is empty")
    return text.replace("\\t", "\t").encode()


def to_record(line: bytes, key_separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return (key, value) of a line. Raises LineError if the separator is missing."""
    if key_separator is None:
        return None, line
    key, found, value = line.partition(key_separator)
    if not found:
        shown = line[:40].decode(errors="replace")
        raise LineError(f"the line {shown!r} has no key separator {key_separator.decode()!r}")
    return key, value


def to_line(key: bytes | None, value: bytes | None, key_separator: bytes | None) -> bytes:
    """Return a record as a line with its line feed; an absent key or value is empty."""
    if key_separator is None:
        return (value or b"") + b"\n"
    return (key or b"") + key_separator + (value or b"") + b"\n"

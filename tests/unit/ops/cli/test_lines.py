"""Lines become records and records lines, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.cli import lines
from ops.cli.lines import LineError, LineSplitter


@given(st.binary(max_size=200).map(lambda b: b.replace(b"x", b"\n")), st.data())
def test_chunks_do_not_matter(content: bytes, data: st.DataObject) -> None:
    splitter, found, position = LineSplitter(), [], 0
    while position < len(content):
        step = data.draw(st.integers(1, len(content)))
        found += splitter.feed(content[position : position + step])
        position += step
    found += splitter.finish()
    whole = content.split(b"\n")
    assert found == (whole if whole[-1] else whole[:-1])


def test_a_carriage_return_belongs_to_the_line() -> None:
    assert LineSplitter().feed(b"a\r\n\n") == [b"a\r", b""]


def test_a_source_without_line_feeds_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_SIZE_MAX", 10)
    splitter = LineSplitter()
    splitter.feed(b"123456789")
    with pytest.raises(LineError, match="longer than 10 bytes"):
        splitter.feed(b"012")


def test_the_key_ends_at_the_first_separator() -> None:
    assert lines.to_record(b"a:b:c", b":") == (b"a", b"b:c")
    assert lines.to_record(b":v", b":") == (b"", b"v")
    assert lines.to_record(b"a:b", None) == (None, b"a:b")


def test_a_line_without_separator_is_shown() -> None:
    with pytest.raises(LineError, match="'abc' has no key separator ':'"):
        lines.to_record(b"abc", b":")


def test_records_become_lines() -> None:
    assert lines.to_line(b"k", b"v", b"\t") == b"k\tv\n"
    assert lines.to_line(None, b"v", b"\t") == b"\tv\n"
    assert lines.to_line(b"k", None, None) == b"\n"


def test_a_typed_tab_is_a_tab() -> None:
    assert lines.separator(r"\t") == b"\t"
    assert lines.separator("=>") == b"=>"
    with pytest.raises(LineError):
        lines.separator("")

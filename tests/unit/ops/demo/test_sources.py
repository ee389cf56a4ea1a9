"""Files become lines and files again, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.demo import sources


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", [b"a\n", b"b\n"]),
        (b"a\n\nb", [b"a\n", b"\n", b"b"]),
        (b"\n", [b"\n"]),
        (b"a\r\nb\rc\n", [b"a\r\n", b"b\rc\n"]),
        (b"\xff\xfe\n", [b"\xff\xfe\n"]),
        (b"", []),
    ],
)
def test_a_line_keeps_its_line_feed(content: bytes, lines: list[bytes]) -> None:
    assert sources.split(content) == lines


@given(st.lists(st.sampled_from([b"\n", b"\r", b"x", b"\x00", b"\xff"])).map(b"".join))
def test_joining_the_lines_gives_the_file(content: bytes) -> None:
    assert sources.join(sources.split(content)) == content


def test_reads_sources_but_no_installed_packages_and_no_empty_files(tmp_path: Path) -> None:
    for name, content in {
        "a.py": b"a",
        "pkg/__init__.py": b"",
        "pkg/b.py": b"b\n",
        "site-packages/c.py": b"c",
        "notes.txt": b"d",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert sources.read_files(tmp_path) == {"a.py": b"a", "pkg/b.py": b"b\n"}


def test_the_standard_library_is_where_its_modules_are() -> None:
    assert (sources.standard_library() / "json" / "__init__.py").is_file()

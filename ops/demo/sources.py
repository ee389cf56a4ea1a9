"""What the demonstration publishes: the source files of the running Python's standard library.

Covers how a file becomes lines and lines become the file again. A line ends with its line feed
(the last one may lack it), so joining the lines of a file in order gives back its bytes, whatever
its encoding, blank lines or carriage returns. An empty file has no lines and is left out.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_NOT_STANDARD: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})


def standard_library() -> Path:
    """Return the folder with the standard library's source files."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every Python file below `folder` by its relative name, sorted."""
    files = {}
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if _NOT_STANDARD.isdisjoint(relative.parts) and path.is_file():
            content = path.read_bytes()
            if content:
                files[relative.as_posix()] = content
    return files


def split(content: bytes) -> list[bytes]:
    r"""Return the lines of a file, each with its line feed: b"a\n\nb" gives a\n, \n, b."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    if last:
        lines.append(last)
    return lines


def join(lines: Iterable[bytes]) -> bytes:
    """Return the file whose lines these are."""
    return b"".join(lines)

"""Files that nobody but their owner can read, from the first moment on.

Used for whatever may hold a password, a key or a token. The mode is given as the file is made: to
change it afterwards would leave others a moment, and an open file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TextIO

_MODE: Final = 0o600


def open_secret(path: Path, *, encoding: str = "utf-8") -> TextIO:
    """Make a file anew and return it for writing; one that is there is removed. Raises OSError."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    return os.fdopen(handle, "w", encoding=encoding)


def write_secret(path: Path, text: str) -> None:
    """Put a file in place at once. Raises OSError."""
    scratch = path.with_name(f".{path.name}.new")
    with open_secret(scratch) as file:
        file.write(text)
    scratch.replace(path)

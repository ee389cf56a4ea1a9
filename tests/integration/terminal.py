"""A full-screen program in a pseudo terminal, and the screen that a person would see.

What such a program writes is text at cursor positions. Of the sequences between it, those that move
the cursor or clear something are obeyed, and colours are kept as they were written; all others
(modes, questions) are passed over. Keys that are typed before the program is where they belong go
somewhere else, so whoever types waits for what is to be seen of it.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich.cells import cell_len

from ops.child import LEASH

PATIENCE_S: Final = 60.0
_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[PX^_][^\x1b]*\x1b\\"
    r"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)


class Screen:
    """Rows of characters, and a cursor."""

    def __init__(self, rows: int, columns: int) -> None:
        self._columns = columns
        self._lines = [[" "] * columns for _ in range(rows)]
        self._looks = [[""] * columns for _ in range(rows)]
        self._look = ""
        self._row = self._column = 0
        self._unfinished = ""

    def __str__(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self._lines)

    def frame_look(self, label: str) -> str:
        """Return how the frame of a field looks, before its label; empty: there is none."""
        for line, looks in zip(self._lines, self._looks, strict=True):
            at = "".join(line).find(f"─ {label} ─")
            if at >= 0:
                return looks[at]
        return ""

    def write(self, text: str) -> None:
        """Draw what a program wrote."""
        text = self._unfinished + text
        self._unfinished = ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._draw(text[at])
                at += 1
                continue
            found = _SEQUENCE.match(text, at)
            if found is None:  # its end comes with the next bytes
                self._unfinished = text[at:]
                return
            at = found.end()
            if found["final"]:
                self._obey(found["final"], found["parameters"])

    def _draw(self, character: str) -> None:
        width = cell_len(character)
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row = min(self._row + 1, len(self._lines) - 1)
        elif width and self._column + width <= self._columns:
            # The second half of a wide character is no character.
            self._lines[self._row][self._column : self._column + width] = [
                character, *[""] * (width - 1)
            ]  # fmt: skip
            self._looks[self._row][self._column] = self._look
            self._column += width

    def _obey(self, final: str, parameters: str) -> None:
        if final in "Hf":
            row, _, column = parameters.partition(";")
            self._row = min(int(row or 1), len(self._lines)) - 1
            self._column = min(int(column or 1), self._columns) - 1
        elif final == "J":
            self._lines = [[" "] * self._columns for _ in self._lines]
        elif final == "K":
            rest = self._columns - self._column
            self._lines[self._row][self._column :] = [" "] * rest
        elif final == "m":
            self._look = parameters


class Terminal:
    """A program, its keyboard and its screen; it ends with `close`."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], *, rows: int, columns: int
    ) -> None:
        self._name = command[0]
        self._screen = Screen(rows, columns)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._keyboard, far_end = pty.openpty()
        fcntl.ioctl(far_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        sizes = {"LINES": str(rows), "COLUMNS": str(columns), "TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command],
            stdin=far_end, stdout=far_end, stderr=far_end, env={**environ, **sizes},
            start_new_session=True,
        )  # fmt: skip
        os.close(far_end)

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._keyboard, keys.encode())

    def shows(self, pattern: str) -> re.Match[str]:
        """Wait until a regular expression is on the screen."""
        self._wait(lambda: re.search(pattern, str(self._screen)) is not None, f"{pattern!r}")
        found = re.search(pattern, str(self._screen))
        assert found is not None
        return found

    def press_tab(self, label: str) -> None:
        """Go to the next field of a form, and wait until that of a label is marked."""
        before = self._screen.frame_look(label)
        assert before, f"{self._name} has no field {label!r}:\n{self._screen}"
        self.press("\t")
        self._wait(lambda: self._screen.frame_look(label) != before, f"mark at {label!r}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not self._read(left_s):
                raise AssertionError(f"{self._name} shows no {what}:\n{self._screen}")

    def close(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._keyboard)

    def _read(self, timeout_s: float) -> bool:
        """Take what the program wrote; False: it has ended, or writes nothing for so long."""
        if not select.select([self._keyboard], [], [], timeout_s)[0]:
            return False
        written = b""
        with contextlib.suppress(OSError):  # so says a terminal whose program is gone
            written = os.read(self._keyboard, 1 << 16)
        self._screen.write(self._decoder.decode(written))
        return bool(written)

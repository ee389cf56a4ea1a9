"""`quire top` as a command: in a terminal with keys, once, as JSON, and with nobody there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator

import pytest

from tests.fakes.admin import AdminCloud

COMMAND = (sys.executable, "-m", "ops.cli.main", "top")


@contextlib.asynccontextmanager
async def cloud_with_a_topic() -> AsyncIterator[AdminCloud]:
    async with AdminCloud(lag_interval_ms=10) as cloud:
        await cloud.send("PUT", "/topics/orders", {}, status=201)
        await cloud.led("orders")
        yield cloud


async def printed(*arguments: str, **environ: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environ},
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


class Terminal:
    """A pseudo terminal with the command in it."""

    def __init__(self) -> None:
        self.screen = ""
        self._changed = asyncio.Event()
        self._keyboard, self._far_end = pty.openpty()
        fcntl.ioctl(self._far_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        asyncio.get_running_loop().add_reader(self._keyboard, self._on_readable)

    async def start(self, *arguments: str) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            stdin=self._far_end,
            stdout=self._far_end,
            stderr=self._far_end,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )

    async def shows(self, text: str) -> None:
        """Wait until the text is drawn, from now on."""
        async with asyncio.timeout(30):
            while text not in self.screen:
                self._changed.clear()
                await self._changed.wait()

    def press(self, key: str) -> None:
        self.screen = ""
        os.write(self._keyboard, key.encode())

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._keyboard)
        os.close(self._keyboard)
        os.close(self._far_end)

    def _on_readable(self) -> None:
        with contextlib.suppress(OSError):
            self.screen += os.read(self._keyboard, 65536).decode(errors="ignore")
        self._changed.set()


async def test_keys_in_a_terminal() -> None:
    async with cloud_with_a_topic() as cloud:
        terminal = Terminal()
        await terminal.start("--interval=0.2", f"--admin={cloud.admins[1].url}")
        await terminal.shows("busiest first")
        assert "\x1b[?1049h" in terminal.screen, "the alternate screen"
        assert "1/1 brokers ready" in terminal.screen
        assert "orders" in terminal.screen
        terminal.press("s")
        await terminal.shows("largest first")
        terminal.press("s")
        await terminal.shows("by name")
        terminal.press("p")
        await terminal.shows("PAUSED")
        terminal.press(" ")
        await terminal.shows("every 0.2 s")
        terminal.press("x")
        await terminal.shows("every 0.2 s")
        terminal.press("q")
        assert await terminal.process.wait() == 0
        await terminal.shows("\x1b[?1049l")
        terminal.close()


async def test_an_old_picture_stays_while_nobody_answers() -> None:
    async with cloud_with_a_topic() as cloud:
        terminal = Terminal()
        await terminal.start("--interval=0.2", f"--admin={cloud.admins[1].url}")
        await terminal.shows("orders")
        await cloud.admins[1].close()
        terminal.screen = ""
        await terminal.shows("No answer; what is shown is old")
        await terminal.shows("orders")
        terminal.press("q")
        assert await terminal.process.wait() == 0
        terminal.close()


async def test_it_ends_with_its_terminal() -> None:
    async with cloud_with_a_topic() as cloud:
        terminal = Terminal()
        await terminal.start("--interval=0.2", f"--admin={cloud.admins[1].url}")
        await terminal.shows("orders")
        terminal.close()
        async with asyncio.timeout(30):
            await terminal.process.wait()


async def test_once_and_in_a_pipe_one_picture_is_printed() -> None:
    async with cloud_with_a_topic() as cloud:
        for arguments in ((), ("--once",)):
            code, out, err = await printed(*arguments, QUIRE_ADMIN=cloud.admins[1].url)
            assert (code, err) == (0, "")
            assert "\x1b" not in out
            assert "1/1 brokers ready" in out
            (row,) = [line.split() for line in out.splitlines() if line.startswith("orders")]
            assert row == ["orders", "1", "1", "0", *row[4:6], "0.0"]


async def test_json_for_scripts() -> None:
    async with cloud_with_a_topic() as cloud:
        code, out, _ = await printed("--once", "--json", QUIRE_ADMIN=cloud.admins[1].url)
        assert code == 0
        (line,) = out.splitlines()
        found = json.loads(line)
        assert [row["topic"] for row in found["topics"]] == ["orders"]
        assert found["topics"][0]["produced_records"] == 0.0
        assert set(found) >= {"brokers", "groups", "bookies", "under_replicated", "at_s"}


@pytest.mark.parametrize("arguments", [(), ("--once",), ("--json",)])
async def test_with_nobody_there_one_sentence_says_so(arguments: tuple[str, ...]) -> None:
    code, out, err = await printed(*arguments, QUIRE_ADMIN="http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("quire: No broker's admin API answers at http://127.0.0.1:1")
    assert "Traceback" not in err

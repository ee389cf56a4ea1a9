"""`quire top` on a live terminal: looks again and again, draws, and listens to keys.

    q, Ctrl-C   the end
    s           another order of topics and groups
    p, space    pause: the picture stays as it is

Covers the terminal: raw keys, the alternate screen, its size. While no broker answers the last
picture stays, with a line that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from client.errors import QuireError
from ops.top.snapshot import Api, Snapshot, take
from ops.top.view import Order, picture


class Screen:
    """One run of it."""

    def __init__(self, api: Api, first: Snapshot, console: Console, interval_s: float) -> None:
        self._api = api
        self._console = console
        self._interval_s = interval_s
        self._order = Order.BUSY
        self._is_paused = False
        self._latest = first
        self._trouble = ""
        self._over = asyncio.Event()
        self._is_gone = False
        """The terminal was closed under us: nobody looks any more."""
        self._live: Live | None = None

    async def run(self) -> None:
        """Draw until somebody presses q, or closes the terminal."""
        try:
            await self._run()
        except OSError:
            if not self._is_gone:
                raise

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        with self._keys(), Live(
            console=self._console, screen=True, auto_refresh=False, transient=True
        ) as self._live:  # fmt: skip
            self._draw()
            looking = loop.create_task(self._look())
            over = loop.create_task(self._over.wait())
            try:
                await asyncio.wait([looking, over], return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                for task in (looking, over):
                    task.cancel()
                await asyncio.gather(looking, over, return_exceptions=True)

    def on_key(self, key: str) -> None:
        """Do what a key means; others mean nothing."""
        if key in ("q", "Q", "\x03"):
            self._over.set()
        elif key in ("s", "S"):
            self._order = self._order.next
        elif key in ("p", "P", " "):
            self._is_paused = not self._is_paused
        self._draw()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if not self._is_paused:
                try:
                    self._latest = await take(self._api, time.time(), self._latest)
                    self._trouble = ""
                except QuireError as error:
                    self._trouble = str(error)
                self._draw()

    def _draw(self) -> None:
        if self._live is None or self._is_gone:
            return
        try:
            self._live.update(self._picture(), refresh=True)
        except OSError:
            self._lose_terminal()

    def _lose_terminal(self) -> None:
        self._is_gone = True
        self._over.set()

    def _picture(self) -> RenderableType:
        at = time.strftime("%H:%M:%S")
        state = "PAUSED" if self._is_paused else f"every {self._interval_s:g} s"
        foot = f"{at}  {state}  {self._order.value}    q quit  s sort  p pause"
        if not self._trouble:
            return picture(self._latest, order=self._order, height=self._console.height, foot=foot)
        old = picture(self._latest, order=self._order, height=self._console.height - 1, foot=foot)
        trouble = Text(
            f"No answer; what is shown is old: {self._trouble}", "bold red", no_wrap=True
        )
        return Group(trouble, old)

    @contextlib.contextmanager
    def _keys(self) -> Iterator[None]:
        """Let keys come one by one and unseen, if there is a keyboard."""
        if not sys.stdin.isatty():
            yield
            return
        loop = asyncio.get_running_loop()
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)

        def on_readable() -> None:
            try:
                keys = os.read(keyboard, 64)
            except OSError:
                keys = b""
            if not keys:
                loop.remove_reader(keyboard)
                self._lose_terminal()
            for key in keys.decode(errors="ignore"):
                self.on_key(key)

        tty.setcbreak(keyboard)
        loop.add_reader(keyboard, on_readable)
        try:
            yield
        finally:
            loop.remove_reader(keyboard)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

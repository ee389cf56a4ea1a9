"""Clients of a chaos run as processes of their own, and how far each has got by its notes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tests.chaos.faults import Strike
from tests.chaos.judges.hangs import Hang, hangs
from tests.chaos.nodes import Node

_SAYING_S = 1.0


class Client(NamedTuple):
    """A client's process and its notes."""

    node: Node
    notes: Path
    role: str


class ClientProcesses:
    """All clients; also their progress, for the campaign. Times are those of `time.monotonic`."""

    def __init__(self, folder: Path, rng: random.Random, spared: Collection[str]) -> None:
        """`spared`: roles whose clients no fault strikes."""
        self._folder = folder
        self._rng = rng
        self._spared = spared
        self._at: dict[str, int] = {}
        self._last_s: dict[str, float] = {}
        self.count = 0
        """Lines of notes so far: acknowledged records, transactions."""
        self.restarts = 0
        """How often one ended by itself."""
        self.all: list[Client] = []

    def notes_of(self, name: str) -> Path:
        """Return where a client is to write what it sees."""
        return self._folder / f"{name}.notes"

    def add(self, role: str, name: str, command: list[str]) -> None:
        """Add a client, whose command writes into its notes."""
        notes = self.notes_of(name)
        node = Node(name, command, self._folder / f"{name}.log", lambda: notes.exists())
        self.all.append(Client(node, notes, role))
        self._last_s[name] = time.monotonic()
        self._at[name] = 0

    def start(self) -> None:
        """Start all."""
        for client in self.all:
            client.node.start()

    def stop(self, role: str, *, kill: bool = False) -> None:
        """Stop those of a role."""
        for client in self.all:
            if client.role == role:
                client.node.resume()
                client.node.kill() if kill else client.node.stop()

    def resume(self) -> None:
        """Let all go on, and start those that do not run."""
        for client in self.all:
            client.node.resume()
            client.node.start()

    def say_where(self) -> None:
        """Have all write into their logs where each of their threads is: SIGQUIT, which is Java's
        word for it; Python's clients answer it, too."""
        for client in self.all:
            if client.node.is_running and not client.node.is_paused:
                os.kill(client.node.pid, signal.SIGQUIT)
        time.sleep(_SAYING_S)

    def hung(self) -> list[tuple[str, Hang]]:
        """Return each call of a client's library that did not return, which ended the client, and
        the client's name."""
        found = []
        for client in self.all:
            log = self._folder / f"{client.node.name}.log"
            if log.exists():
                with log.open(errors="replace") as lines:
                    found += [(client.node.name, hang) for hang in hangs(lines)]
        return found

    def lines(self, role: str) -> list[str]:
        """Return what clients of a role noted, whole lines only."""
        found = []
        for client in self.all:
            if client.role == role and client.notes.exists():
                text = client.notes.read_text()
                found += text[: text.rfind("\n") + 1].splitlines()
        return found

    # ---------------------------------------------------------------- faults

    def client_kill(self) -> Strike | None:
        """kill -9 of one that is not spared."""
        client = self._running()
        if client is None:
            return None
        client.node.kill()
        return Strike(f"{client.node.name} killed", client.node.start, self._rng.uniform(0.2, 4.0))

    def client_pause(self) -> Strike | None:
        """SIGSTOP of one, for longer than its session or transaction may last at times."""
        client = self._running()
        if client is None:
            return None
        client.node.pause()
        for_s = self._rng.choice((1.0, 8.0, 14.0))
        return Strike(f"{client.node.name} paused", client.node.resume, for_s)

    def _running(self) -> Client | None:
        running = [
            client
            for client in self.all
            if client.role not in self._spared
            and client.node.is_running
            and not client.node.is_paused
        ]
        return self._rng.choice(running) if running else None

    # ---------------------------------------------------------------- progress

    def look(self) -> None:
        """Take note of what was noted since the last look; start what ended by itself."""
        now_s = time.monotonic()
        for client in self.all:
            name = client.node.name
            size = client.notes.stat().st_size if client.notes.exists() else 0
            if size > self._at[name]:
                self._at[name], self._last_s[name] = size, now_s
                self.count += 1
            if client.node.is_preferred and not client.node.is_running:
                self.restarts += 1
                client.node.start()

    def latest(self) -> dict[str, float]:
        """Return when each of those that must get on last did."""
        return dict(self._last_s)

    def silent_s(self) -> float:
        """Return for how long one of them has got nowhere."""
        return time.monotonic() - min(self.latest().values())

    def silent(self, since_s: float) -> list[str]:
        """Name those that have got nowhere since then."""
        return [name for name, last_s in self.latest().items() if last_s < since_s]

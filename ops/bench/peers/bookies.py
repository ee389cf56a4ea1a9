"""Bookies alone as a system under test: some of one kind, and a ZooKeeper server of their own.

The ZooKeeper server is the same for both kinds, and its work is part of neither's figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from client.errors import NoNode
from client.ids import BookieId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from ops import zookeeper
from ops.bench.peers.system import PeerError, SystemName
from ops.child import Child
from ops.java import find_java
from ops.local.node_files import bookie_settings, write_toml
from ops.ports import pick_free

_HOST: Final = "127.0.0.1"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02


class Bookies(ABC):
    """Bookies of one kind; which, subclasses know."""

    def __init__(self, folder: Path, count: int, about: SystemName) -> None:
        self.about = about
        self.folder = folder
        self._zookeeper_port, *self.ports = pick_free(1 + count)
        self.zookeeper = f"{_HOST}:{self._zookeeper_port}"
        self._server: Child | None = None
        self._bookies: list[Child] = []

    @abstractmethod
    def _bookie(self, i: int) -> Child:
        """Write the settings of bookie `i` and return its process, not yet started."""

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Return what is set otherwise than by default."""

    @abstractmethod
    def index_bytes(self) -> int:
        """Return the bytes on disk of what the bookies find entries by."""

    async def start(self) -> None:
        """Start everything. Raises QuireError; then nothing is left running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self._start_zookeeper()
            self._bookies = [self._bookie(i) for i in range(len(self.ports))]
            for bookie in self._bookies:
                await bookie.start()
            await self.registered()
        except BaseException:
            await self.stop()
            raise

    async def _start_zookeeper(self) -> None:
        self._server = zookeeper.make_server(
            find_java(),
            folder=self.folder / "zookeeper",
            log_path=self.folder / "zookeeper.log",
            port=self._zookeeper_port,
        )
        await self._server.start()
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not await zookeeper.answers(_HOST, self._zookeeper_port):
            _check(self._server, deadline_s)
            await asyncio.sleep(_POLL_S)
        async with self._store() as store:
            await init_bookkeeper(store, rng=random.SystemRandom())

    async def stop(self) -> None:
        """Stop the bookies, then ZooKeeper."""
        await asyncio.gather(*(bookie.stop(_STOP_TIMEOUT_S) for bookie in self._bookies))
        if self._server is not None:
            await self._server.stop(_STOP_TIMEOUT_S)

    async def registered(self) -> None:
        """Wait until all bookies are registered. Raises PeerError."""
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        async with self._store() as store:
            while len(await store.children(paths.available())) <= len(self.ports):
                # `readonly` lies beside them
                for bookie in self._bookies:
                    _check(bookie, deadline_s)
                await asyncio.sleep(_POLL_S)

    async def end_bookie(self, signal_number: int) -> None:
        """End the first bookie by a signal, and its registration with it.

        After kill -9 a registration outlives its bookie by the session's timeout, and a bookie
        waits for that at its next start: a setting, and not what is measured.
        """
        self._bookies[0].send(signal_number)
        await self._bookies[0].wait()
        bookie_id = BookieId(f"{_HOST}:{self.ports[0]}")
        async with self._store() as store:
            for path in (paths.available_bookie(bookie_id), paths.readonly_bookie(bookie_id)):
                with contextlib.suppress(NoNode):
                    await store.delete(path)

    async def revive_bookie(self) -> None:
        """Start the first bookie's process again."""
        await self._bookies[0].start()

    def bookie_pids(self) -> Sequence[int]:
        """Return the process id of each bookie."""
        return [bookie.pid for bookie in self._bookies]

    def pids(self) -> Sequence[int]:
        """Return bookies and ZooKeeper."""
        assert self._server is not None
        return [*self.bookie_pids(), self._server.pid]

    def data_folder(self) -> Path:
        """Return the folder of everything."""
        return self.folder

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[ZooKeeperStore]:
        store = ZooKeeperStore(self.zookeeper)
        await store.start()
        try:
            yield store
        finally:
            await store.close()


class QuireBookies(Bookies):
    """Quire's bookies, with the settings of `quire up`."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count, SystemName("quire", "synced by the ack quorum"))

    def _bookie(self, i: int) -> Child:
        file = self.folder / f"bookie-{i}.toml"
        settings = bookie_settings(
            port=self.ports[i],
            admin_port=0,
            data_dir=self._data(i),
            zookeeper=[self.zookeeper],
            auto_recovery=False,
        )
        write_toml(file, settings)
        return Child(
            f"bookie-{i}",
            [sys.executable, "-m", "bookie", "--config", str(file.resolve())],
            log_path=self.folder / f"bookie-{i}.log",
        )

    def _data(self, i: int) -> Path:
        return self.folder / f"bookie-{i}"

    def settings(self) -> Mapping[str, str]:
        """Return what `quire up` sets."""
        return {"all": "as `quire up` sets them, without auto recovery"}

    def index_bytes(self) -> int:
        """Return the size of the LevelDB files."""
        return sum(size_of(self._data(i) / "index") for i in range(len(self.ports)))


def size_of(folder: Path, pattern: str = "*") -> int:
    """Return the allocated bytes of a folder's files, at any depth."""
    found = 0
    for path in folder.rglob(pattern):
        with contextlib.suppress(OSError):  # files come and go
            if path.is_file():
                found += path.stat().st_blocks * 512
    return found


def _check(child: Child, deadline_s: float) -> None:
    """Raise PeerError when a process that starts has ended, or its time is over."""
    if not child.running:
        last = "\n".join(child.last_lines())
        raise PeerError(f"{child.name} ended while it started:\n{last}")
    if time.monotonic() > deadline_s:
        raise PeerError(f"{child.name} did not get ready in time: see {child.log_path}")

"""Servers of a real ensemble lag, as those of the in-memory store do: one contract for both.

Three servers vote, and a fourth one observes. They talk to the leader over links that a test holds
up: a follower that hears nothing goes on answering what it is asked, which a stopped one would not,
so it lags for as long as the test wants. When neither follower is heard, nothing is committed.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.metadata.zookeeper import ZooKeeperStore
from ops.child import LEASH
from ops.java import find_java
from ops.ports import pick_free
from ops.zookeeper import make_server
from tests.integration.cluster import wait_until
from tests.integration.proxy import Proxy
from tests.unit.client.metadata.contract import LagContract, Recorder, SessionState

_LEADER, _SLOW, _FOLLOWER, _OBSERVER = 3, 1, 2, 4
_SESSION_TIMEOUT_MS = 15_000
_QUIET_S = 0.3


class HeldLink(Proxy):
    """A server's link to the leader; each direction can be held up."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.hears, self.is_heard = asyncio.Event(), asyncio.Event()
        self.hears.set()
        self.is_heard.set()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        flows = self.hears if sink in self._links else self.is_heard
        try:
            while chunk := await source.read(65536):
                await flows.wait()
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        sink.close()


class Ensemble:
    """The servers and their links, which have an event loop and a thread of their own."""

    def __init__(self, folder: Path) -> None:
        numbers = (_SLOW, _FOLLOWER, _LEADER, _OBSERVER)
        free = iter(pick_free(3 * len(numbers)))
        self.ports = {number: next(free) for number in numbers}
        self._peers = {number: next(free) for number in numbers}
        self._votes = {number: next(free) for number in numbers}
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.links = {
            number: HeldLink(self._peers[_LEADER]) for number in numbers if number != _LEADER
        }
        for link in self.links.values():
            self._run(link.heal())

    def start(self) -> None:
        """Let the leader find a first follower, so that it leads, and then the others."""
        for number in (_LEADER, _FOLLOWER):
            self._start(number)
        self._await_mode(_LEADER, "leader")
        for number in (_SLOW, _OBSERVER):
            self._start(number)
        for number, mode in ((_FOLLOWER, "follower"), (_SLOW, "follower"), (_OBSERVER, "observer")):
            self._await_mode(number, mode)

    def _start(self, number: int) -> None:
        folder = self._folder / str(number)
        log_path = folder / "zookeeper.log"
        child = make_server(find_java(), folder=folder, log_path=log_path, port=self.ports[number])
        (folder / "data").mkdir()
        (folder / "data" / "myid").write_text(f"{number}\n")
        lines = ["initLimit=40", "syncLimit=60", "quorumListenOnAllIPs=false"]
        if number == _OBSERVER:
            lines.append("peerType=observer")
        for other, peer in self._peers.items():
            if other == _LEADER != number:
                peer = self.links[number].port
            role = ":observer" if other == _OBSERVER else ""
            lines.append(f"server.{other}=127.0.0.1:{peer}:{self._votes[other]}{role}")
        with (folder / "zoo.cfg").open("a") as config:
            config.write("\n".join(lines) + "\n")
        with log_path.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *child.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _await_mode(self, number: int, mode: str) -> None:
        def has_mode() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", self.ports[number]), 1) as link:
                    link.sendall(b"srvr")
                    found = b"".join(iter(lambda: link.recv(4096), b""))
            except OSError:
                return False
            return f"Mode: {mode}\n".encode() in found

        wait_until(has_mode, f"server {number} to be {mode}, see {self._folder}")

    def set(self, number: int, *, hears: bool | None = None, is_heard: bool | None = None) -> None:
        """Hold a server's link up, or let it go on, in one direction or both."""
        link = self.links[number]

        async def change() -> None:
            for event, flows in ((link.hears, hears), (link.is_heard, is_heard)):
                if flows is not None:
                    (event.set if flows else event.clear)()

        self._run(change())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def stop(self) -> None:
        """kill -9 everything."""
        for process in self._processes:
            process.kill()
            process.wait()
        for link in self.links.values():
            self._run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class EnsembleLab:
    """Each session has a link of its own, which leads to one server at a time."""

    def __init__(self, ensemble: Ensemble, root: str) -> None:
        self.root = root
        self._ensemble = ensemble
        self._links: dict[ZooKeeperStore, Proxy] = {}
        self._is_stalled = False

    async def session(self, number: int = _LEADER) -> ZooKeeperStore:
        link = Proxy(self._ensemble.ports[number])
        await link.heal()
        store = ZooKeeperStore(f"127.0.0.1:{link.port}", session_timeout_ms=_SESSION_TIMEOUT_MS)
        await store.start()
        self._links[store] = link
        return store

    async def slow_session(self) -> ZooKeeperStore:
        return await self.session(_SLOW)

    async def hold(self) -> None:
        self._ensemble.set(_SLOW, hears=False)

    async def release(self) -> None:
        self._ensemble.set(_SLOW, hears=True)

    async def move(self, store: ZooKeeperStore, *, to_slow: bool = False) -> None:
        """Where nothing is committed, neither follower can take a session: the observer can."""
        states, link = Recorder(), self._links[store]
        store.add_session_listener(states)
        await link.cut()
        await states.said(SessionState.SUSPENDED)
        to = _SLOW if to_slow else _OBSERVER if self._is_stalled else _LEADER
        link._target = self._ensemble.ports[to]
        await link.heal()

    async def stall(self) -> None:
        self._is_stalled = True
        for number in (_SLOW, _FOLLOWER):
            self._ensemble.set(number, is_heard=False)

    async def proceed(self) -> None:
        for number in (_SLOW, _FOLLOWER):
            self._ensemble.set(number, is_heard=True)

    async def quiet(self) -> None:
        await asyncio.sleep(_QUIET_S)

    async def close(self) -> None:
        await self.release()
        await self.proceed()
        for store, link in self._links.items():
            await store.close()
            await link.close()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()


class TestZooKeeperEnsemble(LagContract):
    @pytest.fixture
    async def lab(
        self, ensemble: Ensemble, request: pytest.FixtureRequest
    ) -> AsyncIterator[EnsembleLab]:
        lab = EnsembleLab(ensemble, f"/lab-{request.node.name}")
        admin = ZooKeeperStore(f"127.0.0.1:{ensemble.ports[_LEADER]}")
        await admin.start()
        await admin.create(lab.root)
        await admin.close()
        yield lab
        await lab.close()

"""Nodes of the metadata store that brokers cannot read for a while, and what must hold meanwhile.

Somebody edits a topic or an access control entry by hand, or a newer release writes a registration
in a format of its own; a moment later it is put right. `client/metadata/unreadable.py` has the
rule: what cannot be read is there, and is alive.

    AD9 nobody takes a partition from a broker because its registration cannot be read, if all have
        heard of that broker before
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from client.errors import ConnectionLoss, MetadataError, NoNode
from client.metadata import paths
from tests.simulation.clusters.newer_release import FORMAT
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    from client.ids import BrokerId
    from client.metadata.memory_requests import Request
    from client.metadata.tree import Readable
    from tests.simulation.clusters.admin_book import AdminBook
    from tests.simulation.clusters.world import ClusterWorld

_SPOILED_S: Final = (0.05, 0.3, 1.0)
_HEARD_S: Final = 2.0
"""Whoever has had a session for so long has heard of what was registered as long ago."""
_DIRECTORIES: Final = (paths.TOPICS, paths.TOPICS, paths.ACLS)
_RETRY_S: Final = 0.01
_COUNTED: Final = {
    paths.TOPICS: "topics that cannot be read",
    paths.ACLS: "entries that cannot be read",
    paths.BROKERS: "registrations of a later format",
}
_OWNER: Final = "/owner"


def is_spoiled(data: bytes) -> bool:
    """Whether nobody can read a node."""
    try:
        return bool(json.loads(data).get("version", 0) >= FORMAT)
    except ValueError:
        return True


class SpoiledNodes:
    """Spoils nodes and puts them right, and judges what becomes of their owners."""

    def __init__(self, world: ClusterWorld, book: AdminBook) -> None:
        self._world = world
        self._book = book
        self._rng = world.fork_rng("spoiled nodes")
        self._spoiled: dict[str, None] = {}
        """Those that nobody can read just now, and of which all had heard."""
        self._owners: dict[str, tuple[str, int]] = {}
        """Owner node -> (its broker's registration, session)."""
        self._author = 0
        """The session that makes a change just now; 0: none, one ends."""
        self._begun_s: dict[int, float] = {}
        """Session -> when it first asked for anything."""

    def watch(self) -> None:
        """Learn from now on who makes a change."""
        cluster = self._world.store.cluster
        apply = cluster._apply

        def noted(request: Request, tree: Readable) -> object:
            self._author = request.store._last_session_id
            self._begun_s.setdefault(self._author, self._world.loop.time())
            try:
                return apply(request, tree)
            finally:
                self._author = 0

        cluster._apply = noted  # type: ignore[method-assign]

    def spoil(self, newer: BrokerId | None) -> bool:
        """Spoil something; False: there is nothing. `newer`: a broker of a newer release."""
        if newer is not None and self._rng.random() < 0.5:
            return self._spoil_registration(newer)
        directory, tree = self._rng.choice(_DIRECTORIES), self._world.store.cluster.tree
        names = tree.children(directory) if tree.find(directory) else []
        if not names:
            return False
        path = f"{directory}/{self._rng.choice(names)}"
        return self._spoil(path, is_by_hand=self._rng.random() < 0.5)

    def _spoil_registration(self, broker: BrokerId) -> bool:
        """Let a broker of a newer release be registered in a format of that release."""
        path = paths.broker(broker)
        node = self._world.store.cluster.tree.find(path)
        return node is not None and self._spoil(path, is_by_hand=False)

    def _spoil(self, path: str, *, is_by_hand: bool) -> bool:
        node = self._world.store.cluster.tree.get(path)
        if is_spoiled(node.data):
            return False
        spoiled = b"edited by hand" if is_by_hand else _of_later_format(node.data)
        mean_s = self._rng.choice(_SPOILED_S)
        for_s = self._rng.expovariate(1 / mean_s)
        self._world.oracle.count(_COUNTED[path.rpartition("/")[0]])
        self._world.oracle.note("NEMESIS spoils %s for %.2f s", path, for_s)

        async def spoil() -> None:
            if await self._set(path, spoiled, node.version):
                await asyncio.sleep(for_s)
                await self._set(path, node.data, node.version + 1)

        self._world.loop.create_task(spoil())
        return True

    async def _set(self, path: str, data: bytes, version: int) -> bool:
        """Set a node if it has a version; False: somebody was faster."""
        admin = self._world.admin
        while True:
            try:
                await admin.set(path, data, version)
            except ConnectionLoss:
                await asyncio.sleep(_RETRY_S)
            except MetadataError:
                node = await self._find(path)
                return node is not None and node == (data, version + 1)
            else:
                return True

    async def _find(self, path: str) -> tuple[bytes, int] | None:
        while True:
            try:
                node = await self._world.admin.get(path)
            except ConnectionLoss:
                await asyncio.sleep(_RETRY_S)
            except NoNode:
                return None
            else:
                return node.data, node.version

    def node_changed(self, path: str, data: bytes | None) -> None:
        """A node of the store has a value; None: it is gone."""
        if path.endswith(_OWNER):
            self._owner_changed(path, data)
        elif path.rpartition("/")[0] == paths.BROKERS:
            self._spoiled.pop(path, None)
            if data is not None and is_spoiled(data) and self._age_s(path) > _HEARD_S:
                self._spoiled[path] = None

    def _age_s(self, path: str) -> float:
        """Return how old a node is. One that ends with its session goes without a word."""
        node = self._world.store.cluster.tree.get(path)
        made_s = (node.ctime_ms - SimClock.EPOCH_MS) / 1000
        return self._world.loop.time() - made_s

    def _owner_changed(self, path: str, data: bytes | None) -> None:
        if data is not None:
            broker = json.loads(data)["broker"]
            self._owners[path] = paths.broker(broker), self._author
            return
        registration, session_id = self._owners.pop(path)
        topic_id = path.removeprefix(f"{paths.PARTITIONS}/").partition("/")[0]
        if self._author in (0, session_id) or not self._book.is_there(topic_id):
            return
        has_heard = self._world.loop.time() - self._begun_s[self._author] > _HEARD_S
        if has_heard and registration in self._spoiled:
            self._world.oracle.fail("AD9", f"{path} goes, {registration} is only unreadable")


def _of_later_format(data: bytes) -> bytes:
    fields: dict[str, Any] = json.loads(data)
    return json.dumps({**fields, "version": FORMAT}).encode()

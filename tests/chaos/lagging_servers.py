"""ZooKeeper servers that lag: a follower is stopped for some seconds, again and again.

Some nodes are connected to it meanwhile, and when it goes on, too: what they read then is the past,
until it has heard of all that was committed. The two others are a majority, so the store works.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable

from tests.chaos.cluster import ChaosCluster, Member
from tests.chaos.links import Link

_EVERY_S = (2.0, 5.0)
_STOPPED_S = (0.5, 3.0)
_BOUND_S = 1.0
"""For how long nodes have only that server after it goes on."""
_NODES_MAX = 3


class LaggingServers:
    """A thread that does it between `start` and `stop`."""

    def __init__(self, cluster: ChaosCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0
        """How often a follower was stopped."""
        self.moved = 0
        """How many connections of nodes it had then."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it, and let everything go on. May be called again."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._rng.uniform(*_EVERY_S)):
            self._stop_one()

    def _stop_one(self) -> None:
        followers = [i for i in range(len(self._cluster.zookeepers)) if self._is_follower(i)]
        if not followers:
            return
        index = self._rng.choice(followers)
        node = self._cluster.zookeepers[index]
        count = self._rng.randint(1, _NODES_MAX)
        others = [
            link
            for member in self._rng.sample(self._cluster.members, count)
            for link in _others(member, index)
        ]
        self._all(others, Link.cut)
        try:
            self._over.wait(self._rng.uniform(0.1, 0.5))  # until they are connected to it
            node.pause()
            self.count += 1
            self.moved += count
            self._over.wait(self._rng.uniform(*_STOPPED_S))
            node.resume()
            self._over.wait(self._rng.uniform(0.0, _BOUND_S))
        finally:
            node.resume()
            self._all(others, Link.heal)

    def _all(self, links: list[Link], change: Callable[[Link], None]) -> None:
        self._cluster.links.do(lambda: [change(link) for link in links] and None)

    def _is_follower(self, index: int) -> bool:
        """Ask a server that runs what it is."""
        node = self._cluster.zookeepers[index]
        if not node.is_running or node.is_paused:
            return False
        port = int(self._cluster.zookeeper.split(",")[index].rpartition(":")[2])
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
                link.sendall(b"srvr")
                text = b""
                while chunk := link.recv(4096):
                    text += chunk
        except OSError:
            return False
        return b"Mode: follower" in text


def _others(member: Member, index: int) -> list[Link]:
    """Return what leads from a node to the other servers."""
    return [link for at, link in enumerate(member.to_store) if at != index]

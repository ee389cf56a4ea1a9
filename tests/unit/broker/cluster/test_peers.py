"""Noticing that a peer's process is gone, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from broker.cluster import peers as peers_module
from broker.cluster.core.topology import BrokerInfo
from broker.cluster.peers import Peers
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster

ME = BrokerId(1)


class FakeCluster:
    """A view that a test changes."""

    def __init__(self, *infos: BrokerInfo) -> None:
        self.brokers: Mapping[BrokerId, BrokerInfo] = {}
        self.listeners: list[Callable[[], None]] = []
        self.show(*infos)

    def add_listener(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def show(self, *infos: BrokerInfo) -> None:
        self.brokers = {info.id: info for info in infos}
        for listener in self.listeners:
            listener()


class Peer:
    """A process that listens, and can die."""

    def __init__(self) -> None:
        self.transports: list[asyncio.Transport] = []
        self.connected = asyncio.Event()
        self.server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        peer = self

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                peer.transports.append(transport)
                peer.connected.set()

        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(Accepted, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def break_connections(self) -> None:
        self.connected.clear()
        for transport in self.transports:
            transport.abort()
        self.transports.clear()

    def die(self) -> None:
        assert self.server is not None
        self.server.close()
        self.break_connections()

    def info(self, incarnation: str = "one", broker_id: int = 2) -> BrokerInfo:
        return BrokerInfo(
            id=BrokerId(broker_id),
            incarnation=incarnation,
            host="127.0.0.1",
            port=self.port,
            advertised=False,
        )


@pytest.fixture
async def peer() -> Peer:
    made = Peer()
    await made.start()
    return made


async def registered(info: BrokerInfo) -> MemoryCluster:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    await cluster.session().create(
        paths.broker(info.id), info.encode(), ephemeral=True, make_parents=True
    )
    return cluster


def is_registered(cluster: MemoryCluster) -> bool:
    return cluster.tree.children(paths.BROKERS) == ["2"]


async def watch(cluster: MemoryCluster, view: FakeCluster, answer_max_s: float = 0.1) -> Peers:
    peers = Peers(cluster.session(), view, ME, answer_max_s)
    peers.start()
    return peers


async def until_gone(cluster: MemoryCluster) -> None:
    async with asyncio.timeout(5):
        while is_registered(cluster):  # noqa: ASYNC110 - the tree has no events
            await asyncio.sleep(0.002)


async def test_a_dead_process_loses_its_registration_at_once(peer: Peer) -> None:
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()))
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    loop = asyncio.get_running_loop()
    died = loop.time()
    peer.die()
    await until_gone(cluster)
    assert loop.time() - died < 0.3
    await peers.close()


async def test_a_peer_is_suspected_from_the_break_to_the_verdict(peer: Peer) -> None:
    cluster = await registered(peer.info())
    view = FakeCluster(peer.info())
    peers = await watch(cluster, view)
    two = BrokerId(2)
    assert not peers.is_suspected(two)
    await peers.ask([two, ME, BrokerId(3)])
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    assert not peers.is_suspected(two)
    peer.die()
    await peers.ask([two])
    assert peers.is_suspected(two), "who asks hears of the break at once"
    await until_gone(cluster)
    assert peers.is_suspected(two)
    view.show()
    assert not peers.is_suspected(two)
    await peers.close()


async def test_a_peer_that_is_connected_to_again_is_not_suspected(peer: Peer) -> None:
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()))
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    peer.break_connections()
    await peers.ask([BrokerId(2)])
    assert peers.is_suspected(BrokerId(2))
    await peer.connected.wait()
    await asyncio.sleep(0.01)
    assert not peers.is_suspected(BrokerId(2))
    await peers.close()
    peer.die()


async def test_a_doubt_does_not_last(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom we cannot reach, clients may: the session timeout decides."""
    monkeypatch.setattr(peers_module, "_SUSPECT_MAX_S", 0.2)
    cluster = await registered(peer.info())
    cluster.on_request = lambda request: Fault.LOSE_REQUEST if request.name == "delete" else None
    peers = await watch(cluster, FakeCluster(peer.info()))
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    peer.die()
    await peers.ask([BrokerId(2)])
    assert peers.is_suspected(BrokerId(2))
    await asyncio.sleep(0.25)
    assert not peers.is_suspected(BrokerId(2))
    await peers.close()


async def test_a_peer_that_says_nothing_is_not_waited_for_long(peer: Peer) -> None:
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()))
    await peer.connected.wait()
    await asyncio.sleep(0.01)
    began_s = asyncio.get_running_loop().time()
    await peers.ask([BrokerId(2)])
    assert asyncio.get_running_loop().time() - began_s < 2
    assert not peers.is_suspected(BrokerId(2)), "it may only be slow"
    await peers.close()
    peer.die()


async def test_a_broker_that_may_not_wait_asks_nobody(peer: Peer) -> None:
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()), answer_max_s=0)
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    peer.die()
    await peers.ask([BrokerId(2)])
    assert not peers.is_suspected(BrokerId(2)), "nobody gave the break the time to be heard of"
    await peers.close()


async def test_a_process_that_dies_while_it_is_connected_to_again_is_noticed_soon(
    peer: Peer,
) -> None:
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()))
    await peer.connected.wait()
    peer.break_connections()
    await peer.connected.wait()
    began_s = asyncio.get_running_loop().time()
    peer.die()
    await until_gone(cluster)
    assert asyncio.get_running_loop().time() - began_s < 5
    assert peers_module._PAUSE_MIN_S < 0.1, "or clients see it in their p99"
    await peers.close()


async def test_a_broken_connection_to_a_live_process_is_only_made_again(peer: Peer) -> None:
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()))
    for _ in range(3):
        await peer.connected.wait()
        await asyncio.sleep(0.11)
        peer.break_connections()
    await peer.connected.wait()
    assert is_registered(cluster)
    await peers.close()
    peer.die()


async def test_a_peer_that_was_never_reached_is_left_alone(peer: Peer) -> None:
    peer.die()
    await asyncio.sleep(0.01)
    cluster = await registered(peer.info())
    peers = await watch(cluster, FakeCluster(peer.info()))
    await asyncio.sleep(0.7)
    assert is_registered(cluster)
    await peers.close()


async def test_a_new_incarnation_is_left_alone(peer: Peer) -> None:
    old = peer.info("one")
    cluster = await registered(old)
    peers = await watch(cluster, FakeCluster(old))
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    cluster.tree.set(paths.broker(old.id), peer.info("two").encode(), -1)
    peer.die()
    await asyncio.sleep(0.5)
    assert is_registered(cluster)
    await peers.close()


async def test_a_lost_answer_is_tried_again(peer: Peer) -> None:
    cluster = await registered(peer.info())
    faults = [Fault.LOSE_REQUEST]
    cluster.on_request = lambda request: (
        faults.pop() if faults and request.name == "delete" else None
    )
    peers = await watch(cluster, FakeCluster(peer.info()))
    await peer.connected.wait()
    await asyncio.sleep(0.11)
    peer.die()
    await until_gone(cluster)
    assert not faults
    await peers.close()


async def test_it_follows_the_view(peer: Peer) -> None:
    mine = peer.info("me", broker_id=int(ME))
    cluster = await registered(peer.info())
    view = FakeCluster(mine)
    peers = await watch(cluster, view)
    await asyncio.sleep(0.05)
    assert not peer.transports, "nobody watches himself"
    view.show(mine, peer.info())
    await peer.connected.wait()
    view.show(mine)
    await asyncio.sleep(0.15)
    peer.die()
    await asyncio.sleep(0.3)
    assert is_registered(cluster)
    await peers.close()
    view.show(mine, peer.info())
    assert not peers._watches

"""Authentication plugins (AUTH), Apache's own by SASL: Quire has none, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.errors import LedgerError, WriteFailed
from tests.fakes import certificates
from tests.integration.cluster import RealZooKeeper
from tests.interop.bookkeeper.cluster import BookieTree
from tests.interop.bookkeeper.conftest import init_tree
from tests.interop.bookkeeper.ours import payloads
from tests.interop.bookkeeper.peer import Peer
from tests.interop.bookkeeper.test_tls import java, quire_flags

PLUGIN = {"clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"}
"""Settings of Apache's client, in a JVM that has the fixture `jaas`."""


def life_of_a_ledger(peer: Peer, tree: BookieTree, conf: dict[str, str]) -> None:
    """Write to all bookies of a tree, recover from all of them, and read."""
    size, secret = len(tree.nodes), {"digest": "CRC32C", "password": "secret"}
    made = peer.call("create", tree.root, conf=conf, e=size, qw=size, qa=size, **secret)
    assert peer.call("append", tree.root, handle=made["handle"], count=100)["last"] == 99
    again = {"ledger": made["ledger"], "recover": True, "conf": conf, **secret}
    opened = peer.call("open", tree.root, **again)
    assert opened["last"] == 99
    assert peer.read(tree.root, opened["handle"]) == payloads(100)


@pytest.mark.parametrize("v2", [False, True])
def test_java_with_a_plugin_is_told_that_there_is_none(
    mixed_tree: BookieTree, plugged_peer: Peer, v2: bool
) -> None:
    """It goes on then, with our bookies as with Apache's: nobody waits for an answer."""
    conf = PLUGIN | {"useV2WireProtocol": str(v2).lower()}
    life_of_a_ledger(plugged_peer, mixed_tree, conf)


@pytest.mark.parametrize("v2", [False, True])
def test_it_is_told_so_over_tls(
    bookkeeper_zookeeper: RealZooKeeper, plugged_peer: Peer, tmp_path: Path, v2: bool
) -> None:
    """AUTH comes right behind StartTLS in plain text, and is answered behind the handshake.

    Apache's bookies do the same only if both come in one read, so they are not asked.
    """
    files, root = certificates.write(tmp_path), f"/tls-plugged-{v2}"
    asyncio.run(init_tree(bookkeeper_zookeeper.hosts, root))
    tree = BookieTree(tmp_path, bookkeeper_zookeeper, root)
    tree.quire_flags = quire_flags(files)
    try:
        tree.add(quire=1)
        life_of_a_ledger(plugged_peer, tree, java(files, v2) | PLUGIN)
    finally:
        tree.kill_all()


@pytest.fixture
def plugged_tree(
    bookkeeper_zookeeper: RealZooKeeper, jaas: dict[str, str], tmp_path: Path
) -> Iterator[BookieTree]:
    """One of Apache's bookies, which serves only who has its plugin."""
    asyncio.run(init_tree(bookkeeper_zookeeper.hosts, "/plugged"))
    tree = BookieTree(tmp_path, bookkeeper_zookeeper, "/plugged")
    tree.java_properties = jaas
    provider = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
    tree.java_settings = {
        "bookieAuthProviderFactoryClass": provider,
        "saslJaasClientAllowedIds": "quire",
    }
    tree.add(java=1)
    yield tree
    tree.kill_all()


async def test_a_bookie_that_wants_a_plugin_refuses_us(
    plugged_tree: BookieTree, plugged_peer: Peer, ours: Callable[..., Any]
) -> None:
    await asyncio.to_thread(life_of_a_ledger, plugged_peer, plugged_tree, PLUGIN)
    for version in ("v2", "v3"):
        client = await ours(plugged_tree.root, wire_version=version)
        writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
        with pytest.raises(WriteFailed, match=r"UNAUTHORIZED: .*authentication plugin"):
            await writer.append(b"no")
        with pytest.raises(LedgerError):
            await client.open(writer.ledger_id)

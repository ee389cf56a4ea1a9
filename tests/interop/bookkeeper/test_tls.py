"""Row 11: TLS with certificates of both sides, both clients, both kinds of bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.errors import LedgerError, LedgerFenced, WriteFailed
from client.security.cluster_security import ClusterSecurity
from tests.fakes import certificates
from tests.integration.cluster import RealZooKeeper
from tests.interop.bookkeeper.cluster import BookieTree, ids
from tests.interop.bookkeeper.conftest import init_tree
from tests.interop.bookkeeper.ours import contents, fill, payloads
from tests.interop.bookkeeper.peer import Peer, PeerError

UNAUTHORIZED = -102
SILENT_S = 20.0
"""How long nothing comes of what a stranger asks for: Apache's client does not give up then."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.write(tmp_path_factory.mktemp("certificates"))


def quire_flags(files: Path) -> tuple[str, ...]:
    """Return the flags of our bookies."""
    return (
        f"--cluster-security-tls-ca={files}/authority.pem",
        f"--cluster-security-tls-cert={files}/broker.pem",
        f"--cluster-security-tls-key={files}/broker.key",
        "--access-tls=required",
        "--access-tls-client-auth=required",
        "--access-tls-principal-rules=RULE:^CN=([^,]+).*$/$1/",
        "--access-allowed-clients=anna,broker",
    )


@pytest.fixture(scope="module")
def tree(
    bookkeeper_zookeeper: RealZooKeeper, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BookieTree]:
    asyncio.run(init_tree(bookkeeper_zookeeper.hosts, "/tls"))
    tree = BookieTree(tmp_path_factory.mktemp("tls"), bookkeeper_zookeeper, "/tls")
    tree.quire_flags = quire_flags(files)
    tree.java_settings = {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsClientAuthentication": "true",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": files / "broker.key",
        "tlsCertificatePath": files / "broker.pem",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": files / "authority.pem",
    }
    tree.add(quire=2, java=2)
    yield tree
    tree.kill_all()


def java(files: Path, v2: bool, who: str = "anna") -> dict[str, str]:
    """Return the settings of Apache's client."""
    return {
        "useV2WireProtocol": str(v2).lower(),
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsClientAuthentication": "true",
        "tlsHostnameVerificationEnabled": "true",
        "clientKeyStoreType": "PEM",
        "clientKeyStore": str(files / f"{who}.key"),
        "tlsCertificatePath": str(files / f"{who}.pem"),
        "clientTrustStoreType": "PEM",
        "clientTrustStore": str(files / "authority.pem"),
    }


def ours_with(files: Path, who: str = "anna") -> ClusterSecurity:
    return ClusterSecurity(
        tls_ca=files / "authority.pem", tls_cert=files / f"{who}.pem",
        tls_key=files / f"{who}.key", bookie_tls=True,
    )  # fmt: skip


@pytest.mark.parametrize("v2", [False, True])
async def test_java_writes_and_reads_over_tls(
    tree: BookieTree, files: Path, peer: Peer, ours: Callable[..., Any], v2: bool
) -> None:
    """All four bookies have every entry; a client of ours recovers what Java left open."""
    secret = {"digest": "CRC32C", "password": "secret"}
    conf = java(files, v2)

    def life() -> int:
        made = peer.call("create", tree.root, conf=conf, e=4, qw=4, qa=4, **secret)
        peer.call("append", tree.root, handle=made["handle"], count=99)
        assert peer.call("append", tree.root, handle=made["handle"], count=1)["last"] == 99
        again = {"ledger": made["ledger"], "conf": conf, **secret}
        opened = peer.call("open", tree.root, **again)
        assert peer.read(tree.root, opened["handle"]) == payloads(99)
        return int(made["ledger"])

    ledger_id = await asyncio.to_thread(life)
    client = await ours(tree.root, security=ours_with(files))
    reader = await client.recover(ledger_id, password=b"secret")
    assert await contents(reader) == payloads(100), "recovered: fenced on all bookies"


@pytest.mark.parametrize("version", ["both", "v2", "v3"])
async def test_we_write_and_read_over_tls(
    tree: BookieTree, files: Path, ours: Callable[..., Any], version: str
) -> None:
    client = await ours(tree.root, security=ours_with(files), wire_version=version)
    writer = await client.create(ensemble_size=4, write_quorum=4, ack_quorum=4)
    assert set(writer.metadata.last_fragment.ensemble) == set(ids(list(tree.nodes.values())))
    await fill(writer, 100)
    await writer.close()
    assert await contents(await client.open(writer.ledger_id)) == payloads(100)


@pytest.mark.parametrize("v2", [False, True])
async def test_java_fences_and_recovers_what_we_write_over_tls(
    tree: BookieTree, files: Path, peer: Peer, ours: Callable[..., Any], v2: bool
) -> None:
    client = await ours(tree.root, security=ours_with(files))
    writer = await client.create(ensemble_size=4, write_quorum=4, ack_quorum=4)
    await fill(writer, 100)
    opened = await asyncio.to_thread(
        peer.call, "open", tree.root, ledger=writer.ledger_id, recover=True, conf=java(files, v2)
    )
    assert opened["last"] == 99
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")
    assert await asyncio.to_thread(peer.read, tree.root, opened["handle"]) == payloads(100)


def test_java_without_tls_or_with_another_name_may_do_nothing(
    tree: BookieTree, files: Path, peer: Peer
) -> None:
    # Three of four: two would do with Apache's bookies alone, which take plain text beside TLS.
    for conf in ({"useV2WireProtocol": "false"}, {"useV2WireProtocol": "true"}):
        with pytest.raises(PeerError):
            made = peer.call("create", tree.root, conf=conf, e=3, qw=3, qa=3)
            peer.call("append", tree.root, handle=made["handle"], count=1)
    made = peer.call("create", tree.root, conf=java(files, False, "stranger"), e=3, qw=3, qa=3)
    appending = peer.start("append", tree.root, handle=made["handle"], count=1)
    with pytest.raises(PeerError):
        appending.result(SILENT_S)


async def test_we_without_tls_may_do_nothing(tree: BookieTree, ours: Callable[..., Any]) -> None:
    client = await ours(tree.root, only=ids(tree.quire))
    writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
    with pytest.raises(WriteFailed, match=r"UNAUTHORIZED: .*cluster_security"):
        await writer.append(b"no")
    with pytest.raises(LedgerError):
        await client.open(writer.ledger_id)

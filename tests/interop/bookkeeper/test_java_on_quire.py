"""Rows 1, 2 and 9: Apache's clients and tools on our bookies alone."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import wait_until
from tests.interop.bookkeeper import jvm
from tests.interop.bookkeeper.cluster import BookieNode, BookieTree, run_s
from tests.interop.bookkeeper.kills import killing
from tests.interop.bookkeeper.ours import JAVA_DIGESTS, contents, fill, forgotten, payloads
from tests.interop.bookkeeper.peer import Peer

versions = pytest.mark.parametrize(
    "v2", [pytest.param(False, id="row_1_v3"), pytest.param(True, id="row_2_v2")]
)


def wire(v2: bool) -> dict[str, str]:
    """Return BookKeeper's setting for a version of the wire protocol."""
    return {"useV2WireProtocol": str(v2).lower()}


@versions
def test_simpletest(quire_tree: BookieTree, peer: Peer, v2: bool) -> None:
    counts = ("-ensemble", "3", "-writeQuorum", "2", "-ackQuorum", "2", "-numEntries", "300")
    output = peer.shell(quire_tree.root, "simpletest", *counts, **wire(v2))
    assert "300 entries written to ledger" in output


@versions
def test_bookiesanity(quire_tree: BookieTree, peer: Peer, v2: bool) -> None:
    for node in quire_tree.quire:
        there = {"bookieId": node.bookie_id, **wire(v2)}
        output = peer.shell(quire_tree.root, "bookiesanity", "-entries", "50", **there)
        assert "Bookie sanity test succeeded" in output


@versions
@pytest.mark.parametrize("digest", JAVA_DIGESTS.values())
def test_a_ledgers_whole_life(quire_tree: BookieTree, peer: Peer, v2: bool, digest: str) -> None:
    """Create, append, read while open in both versions, close, read again, delete."""
    root, secret = quire_tree.root, {"digest": digest, "password": "secret"}
    made = peer.call("create", root, conf=wire(v2), qw=2, qa=2, **secret)
    peer.call("append", root, handle=made["handle"], count=199)
    assert peer.call("append", root, handle=made["handle"], count=1)["last"] == 199
    for reader_v2 in (False, True):
        there = {"ledger": made["ledger"], "conf": wire(reader_v2), **secret}
        opened = peer.call("open", root, **there)
        assert opened["last"] == 198, "the LAC that the last entry carries"
        assert peer.read(root, opened["handle"]) == payloads(199)
        unconfirmed = peer.read(root, opened["handle"], last=199, unconfirmed=True)
        assert unconfirmed == payloads(200)
    peer.call("close", root, handle=made["handle"])
    opened = peer.call("open", root, **there)
    assert (opened["last"], opened["closed"]) == (199, True)
    assert opened["length"] == sum(map(len, payloads(200)))
    assert peer.read(root, opened["handle"]) == payloads(200)
    peer.call("delete", root, ledger=made["ledger"])


@versions
async def test_verifier_while_bookies_are_killed(
    plant: Callable[..., BookieTree], tmp_path: Path, v2: bool
) -> None:
    """BookkeeperVerifierMain compares all it reads with what it wrote; it ends with 1 if not."""
    for attempt in range(VERIFIER_ATTEMPTS):
        tree = await asyncio.to_thread(plant, f"/verifier-{2 if v2 else 3}-{attempt}", quire=4)
        verifier = Verifier(tree, tmp_path / f"verifier-{attempt}.log", run_s(short=8), v2)
        try:
            async with killing(tree.quire) as kills:
                code = await asyncio.to_thread(verifier.wait)
        finally:
            verifier.kill()
        tree.kill_all()
        text = verifier.log.read_text()
        if "Java-level deadlock" not in text:
            break
        print(f"the verifier deadlocked, see {verifier.log}")
    assert code == 0, text[-3000:]
    assert "Error found" not in text
    assert kills.count >= 1
    reads = len(re.findall("^Read cb", text, re.MULTILINE))
    print(f"{kills.count} kills, {reads} reads verified")
    assert reads > 0


VERIFIER_ATTEMPTS = 4
"""The verifier once stopped for good when a bookie died: it adds entries while it holds a lock that
its callbacks want, too. Only a deadlock that the JVM itself finds is forgiven."""

_SILENT_S = 20.0


class Verifier:
    """A run of BookkeeperVerifierMain."""

    def __init__(self, tree: BookieTree, log: Path, duration_s: float, v2: bool) -> None:
        self.log = log
        self._process = jvm.launch(
            "org.apache.bookkeeper.verifier.BookkeeperVerifierMain",
            *("-zookeeper", tree.zookeeper, "-ledger_path", tree.root),
            *("-ensemble_size", "3", "-write_quorum", "3", "-ack_quorum", "2"),
            *("-duration", f"{duration_s:.0f}", "-drain_timeout", "60"),
            *("-target_ledger_size", "1048576", "-target_entry_size", "4096"),
            log=log,
            properties={
                "org.apache.bookkeeper.conf.readsystemproperties": "true",
                "quire.log": "warn",
                **wire(v2),
            },
        )

    def wait(self) -> int:
        """Wait for its end; one that says nothing for long is asked for its threads' stacks."""
        size = -1
        while size != (size := self.log.stat().st_size):
            try:
                return self._process.wait(_SILENT_S)
            except subprocess.TimeoutExpired:
                pass
        self._process.send_signal(signal.SIGQUIT)  # writes them into the log
        time.sleep(2)
        self.kill()
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@versions
def test_benchmark_writer(quire_tree: BookieTree, tmp_path: Path, v2: bool) -> None:
    """BenchThroughputLatency measures nothing here; it must get every entry acknowledged."""
    output = run_java(
        tmp_path,
        "org.apache.bookkeeper.benchmark.BenchThroughputLatency",
        *("-zookeeper", quire_tree.zookeeper, "-ensemble", "3", "-quorum", "3"),
        *("-ackQuorum", "2", "-entrysize", "1000", "-ledgers", "5", "-throttle", "500"),
        *("-skipwarmup", "-time", "2", "-latencyFile", str(tmp_path / "latencies")),
        *(("-useV2",) if v2 else ()),
        **{
            "org.apache.bookkeeper.conf.readsystemproperties": "true",
            "metadataServiceUri": f"zk+hierarchical://{quire_tree.zookeeper}{quire_tree.root}",
        },
    )
    assert "completions in" in output, output[-3000:]


@pytest.mark.interop_long  # ten thousand entries, one by one
def test_row_1_a_bookie_does_not_judge_what_entries_hold(
    quire_tree: BookieTree, tmp_path: Path
) -> None:
    """BenchBookie adds entries without a digest, under a key of zeros."""
    output = run_java(
        tmp_path,
        "org.apache.bookkeeper.benchmark.BenchBookie",
        *("-host", "127.0.0.1", "-port", str(quire_tree.quire[0].port), "-size", "1024"),
        *("-zookeeper", quire_tree.zookeeper),
        **{
            "org.apache.bookkeeper.conf.readsystemproperties": "true",
            "metadataServiceUri": f"zk+hierarchical://{quire_tree.zookeeper}{quire_tree.root}",
        },
    )
    assert "Throughput" in output, output[-3000:]


def run_java(folder: Path, main: str, *arguments: str, **properties: str) -> str:
    """Run one of BookKeeper's programs to its end; return what it printed."""
    log = folder / f"{main.rpartition('.')[2]}.log"
    process = jvm.launch(main, *arguments, log=log, properties=properties)
    try:
        code = process.wait(150)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{main} does not end:\n{log.read_text()[-3000:]}")
    finally:
        process.kill()
        process.wait()
    text = log.read_text()
    assert code == 0, text[-3000:]
    return text


async def test_row_9_recover_moves_a_bookies_ledgers(
    plant: Callable[..., BookieTree], peer: Peer, ours: Callable[..., Any]
) -> None:
    """Apache's `recover` copies what a dead bookie of ours held to the others."""
    tree = await asyncio.to_thread(plant, "/recover", quire=4)
    client = await ours(tree.root)
    ledgers = [await filled(client, qw) for qw in (2, 3, 3)]
    lost = await a_member(client, tree, ledgers[1])
    lost.kill()
    await forgotten(client, lost)
    force = ("-force", "-deleteCookie", lost.bookie_id)
    await asyncio.to_thread(peer.shell, tree.root, "recover", *force)
    await check_moved(client, ledgers, lost)
    check_forgotten(peer, tree, lost)
    tree.kill_all()


async def test_row_9_decommissionbookie_with_apaches_auto_recovery(
    plant: Callable[..., BookieTree], peer: Peer, ours: Callable[..., Any]
) -> None:
    tree = await asyncio.to_thread(plant, "/decommission", quire=4)
    client = await ours(tree.root)
    ledgers = [await filled(client, qw) for qw in (2, 3, 3)]
    lost = await a_member(client, tree, ledgers[1])
    with tree.auto_recovery("java"):
        await asyncio.to_thread(
            wait_until,
            lambda: '"auditorElected" : true' in peer.shell(tree.root, "clusterinfo"),
            "an auditor",
        )
        lost.kill()
        await forgotten(client, lost)
        wanted = ("-bookieid", lost.bookie_id)
        await asyncio.to_thread(peer.shell, tree.root, "decommissionbookie", *wanted)
        await check_moved(client, ledgers, lost)
    check_forgotten(peer, tree, lost)
    tree.kill_all()


def check_forgotten(peer: Peer, tree: BookieTree, lost: BookieNode) -> None:
    """Check that the cluster has no cookie of a bookie any more."""
    assert "not found" in peer.shell(tree.root, "cookie_get", lost.bookie_id, rc=-1)


async def filled(client: Any, write_quorum: int, count: int = 100) -> int:
    """Make a closed ledger with `count` entries; return its id."""
    writer = await client.create(ensemble_size=3, write_quorum=write_quorum, ack_quorum=2)
    await fill(writer, count)
    await writer.close()
    ledger_id: int = writer.ledger_id
    return ledger_id


async def a_member(client: Any, tree: BookieTree, ledger_id: int) -> BookieNode:
    """Return a bookie that holds the ledger."""
    ensemble = (await client.describe(ledger_id)).last_fragment.ensemble
    return next(node for node in tree.nodes.values() if node.bookie_id == ensemble[0])


async def check_moved(client: Any, ledgers: list[int], lost: BookieNode) -> None:
    """Check that no ledger names the bookie any more and that every entry is there."""
    for ledger_id in ledgers:
        metadata = await client.describe(ledger_id)
        for fragment in metadata.fragments:
            assert lost.bookie_id not in fragment.ensemble
        assert await contents(await client.open(ledger_id)) == payloads(100)

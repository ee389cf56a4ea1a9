"""Rows 4, 5, 6 and 10: both clients on ensembles of both kinds of bookies, and who fences whom."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.errors import LedgerFenced
from client.ledger import DigestType
from tests.integration.cluster import wait_until
from tests.interop.bookkeeper import jvm
from tests.interop.bookkeeper.cluster import BookieTree, ids
from tests.interop.bookkeeper.ours import JAVA_DIGESTS, contents, fill, payloads
from tests.interop.bookkeeper.peer import Peer, PeerError
from tests.interop.bookkeeper.stalls import Stream, all_go_on, show_forgotten

LEDGER_FENCED = -101
BEFORE_KILL = 150
"""Entries that every ledger has before its writer is killed."""


def is_mixed(tree: BookieTree, ensemble: tuple[str, ...]) -> bool:
    return bool(set(ids(tree.java)) & set(ensemble)) and bool(set(ids(tree.quire)) & set(ensemble))


@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_row_4_readledger_and_ledgermetadata_show_what_we_wrote(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], digest_type: DigestType
) -> None:
    root = mixed_tree.root
    client = await ours(root)
    writer = await client.create(
        ensemble_size=4,
        write_quorum=3,
        ack_quorum=2,
        digest_type=digest_type,
        password=b"secret",
        custom_metadata={"owner": b"quire"},
    )
    assert is_mixed(mixed_tree, writer.metadata.last_fragment.ensemble)
    await fill(writer, 40)
    await writer.close()
    ledger = ("-ledgerid", str(writer.ledger_id))
    printed = await asyncio.to_thread(peer.shell, root, "readledger", *ledger, "-msg")
    shown = re.findall(r"Eid=\d+, EntrySize=\d+ -+\n(.*)$", printed, re.MULTILINE)
    assert shown == [payload.decode() for payload in payloads(40)]
    metadata = await asyncio.to_thread(peer.shell, root, "ledgermetadata", *ledger)
    for wanted in (
        "state=CLOSED",
        "ensembleSize=4",
        "writeQuorumSize=3",
        "ackQuorumSize=2",
        "lastEntryId=39",
        f"length={sum(map(len, payloads(40)))}",
        f"digestType={JAVA_DIGESTS[digest_type.name]}",
        f"ensembles={{0=[{', '.join(writer.metadata.last_fragment.ensemble)}]}}",
        "customMetadata={owner=base64:cXVpcmU=}",
    ):
        assert wanted in metadata, metadata


async def test_row_5_killed_java_writers_are_recovered_by_us(
    mixed_tree: BookieTree,
    peer: Peer,
    start_peer: Callable[[], Peer],
    ours: Callable[..., Any],
) -> None:
    """Every digest type, both versions; a bookie of each kind is killed before the writer."""
    root = mixed_tree.root
    doomed = await asyncio.to_thread(start_peer)
    streams = [
        Stream(doomed, root, digest=digest, v2=v2)
        for v2 in ("false", "true")
        for digest in JAVA_DIGESTS.values()
    ]
    for victim in (mixed_tree.quire[0], mixed_tree.java[0]):
        await asyncio.to_thread(victim.kill)
        await all_go_on(streams, BEFORE_KILL // 2, doomed, mixed_tree)
    await asyncio.to_thread(doomed.kill)
    client = await ours(root)
    for stream in streams:
        ledger, acked = stream.ledger, stream.call.drain()
        assert acked >= BEFORE_KILL - 1
        reader = await client.recover(ledger, password=b"secret")
        assert reader.last_entry >= acked
        assert await contents(reader) == payloads(reader.last_entry + 1)
        there = {"ledger": ledger, "digest": stream.digest, "password": "secret"}
        opened = await asyncio.to_thread(peer.call, "open", root, recover=True, **there)
        assert (opened["last"], opened["closed"]) == (reader.last_entry, True)
        read = await asyncio.to_thread(peer.read, root, opened["handle"])
        assert read == payloads(reader.last_entry + 1)
    show_forgotten(streams)


class KilledWriter:
    """The process of `killed_writer.py`, and what it said."""

    def __init__(self, tree: BookieTree, folder: Path) -> None:
        self.digests: dict[int, str] = {}
        self.acked: dict[int, int] = {}
        self._process = jvm.leashed(
            [sys.executable, "-m", __package__ + ".killed_writer", tree.zookeeper, tree.root],
            log=folder / "killed_writer.log",
            stdout=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_acked(self, further: int) -> None:
        """Wait until every ledger has so many more entries confirmed."""
        wait_until(lambda: len(self.digests) == 2 * len(DigestType), "all ledgers to be made")
        wanted = {ledger: self.acked.get(ledger, -1) + further for ledger in self.digests}
        wait_until(
            lambda: all(self.acked.get(ledger, -1) >= entry for ledger, entry in wanted.items()),
            f"{further} more entries in every ledger",
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith(b"\n"):
                return
            message = json.loads(line)
            if "digest" in message:
                self.digests[message["ledger"]] = message["digest"]
            else:
                self.acked[message["ledger"]] = message["acked"]


async def test_row_6_our_killed_writers_are_recovered_by_java(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], tmp_path: Path
) -> None:
    """The other way round; Java recovers in both versions, too."""
    root = mixed_tree.root
    writer = KilledWriter(mixed_tree, tmp_path)
    try:
        for victim in (mixed_tree.quire[1], mixed_tree.java[1]):
            await asyncio.to_thread(writer.wait_acked, BEFORE_KILL // 2)
            await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(writer.wait_acked, BEFORE_KILL // 2)
    finally:
        writer.kill()
    client = await ours(root)
    for number, (ledger, name) in enumerate(writer.digests.items()):
        secret = {"digest": JAVA_DIGESTS[name], "password": "secret"}
        opened = await asyncio.to_thread(
            peer.call,
            "open",
            root,
            ledger=ledger,
            recover=True,
            conf={"useV2WireProtocol": "true" if number % 2 else "false"},
            **secret,
        )
        assert opened["last"] >= writer.acked[ledger]
        wanted = payloads(opened["last"] + 1)
        assert await asyncio.to_thread(peer.read, root, opened["handle"]) == wanted
        reader = await client.open(ledger, password=b"secret")
        assert (reader.closed, reader.last_entry) == (True, opened["last"])
        assert await contents(reader) == wanted


@pytest.mark.parametrize("v2", ["false", "true"])
async def test_row_10_a_java_writer_that_we_fence_hears_of_it(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], v2: str
) -> None:
    root = mixed_tree.root
    made = peer.call("create", root, e=4, qw=3, qa=2, conf={"useV2WireProtocol": v2})
    stream = peer.start("stream", root, handle=made["handle"])
    await asyncio.to_thread(stream.wait_acked, BEFORE_KILL)
    client = await ours(root)
    reader = await client.recover(made["ledger"])
    with pytest.raises(PeerError) as fenced:
        await asyncio.to_thread(stream.result)
    assert fenced.value.code == LEDGER_FENCED
    assert reader.last_entry >= stream.acked
    assert await contents(reader) == payloads(reader.last_entry + 1)
    with pytest.raises(PeerError):
        peer.call("append", root, handle=made["handle"], count=1)


@pytest.mark.parametrize("v2", ["false", "true"])
async def test_row_10_our_writer_that_java_fences_hears_of_it(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], v2: str
) -> None:
    root = mixed_tree.root
    client = await ours(root)
    writer = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
    await fill(writer, 100)
    opened = await asyncio.to_thread(
        peer.call,
        "open",
        root,
        ledger=writer.ledger_id,
        recover=True,
        conf={"useV2WireProtocol": v2},
    )
    assert opened["last"] == 99
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")
    assert await asyncio.to_thread(peer.read, root, opened["handle"]) == payloads(100)

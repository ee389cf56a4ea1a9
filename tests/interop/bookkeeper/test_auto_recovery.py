"""Rows 7 and 8: either auto recovery makes up for a lost bookie of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.ids import LedgerId
from client.ledger.client import LedgerClient
from tests.integration.test_self_healing import count_copies
from tests.interop.bookkeeper.cluster import BookieNode, BookieTree
from tests.interop.bookkeeper.ours import contents, fill, forgotten, payloads
from tests.interop.bookkeeper.peer import Peer

ENTRIES = 60
TIME_LIMIT_S = 90

kinds = pytest.mark.parametrize("lost_kind", ["quire", "java"])


@kinds
async def test_row_7_javas_auto_recovery_repairs_what_we_wrote(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], lost_kind: str
) -> None:
    client = await ours(mixed_tree.root)
    opened = await client.create(ensemble_size=5, write_quorum=3, ack_quorum=2)
    await fill(opened, ENTRIES)
    opened.abandon()
    ledgers = [opened.ledger_id]
    for _ in range(3):
        writer = await client.create(ensemble_size=5, write_quorum=3, ack_quorum=2)
        await fill(writer, ENTRIES)
        await writer.close()
        ledgers.append(writer.ledger_id)
    lost = await a_member(mixed_tree, client, opened.ledger_id, lost_kind)
    with mixed_tree.auto_recovery("java"):
        await repaired(mixed_tree, peer, client, ledgers, lost)


@kinds
async def test_row_8_our_auto_recovery_repairs_what_java_wrote(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], lost_kind: str
) -> None:
    root = mixed_tree.root
    client = await ours(root)
    ledgers = []
    for number in range(4):
        conf = {"useV2WireProtocol": "true" if number % 2 else "false"}
        made = peer.call("create", root, e=5, qw=3, qa=2, conf=conf)
        peer.call("append", root, handle=made["handle"], count=ENTRIES)
        if number:  # the first one stays open, and its writer silent
            peer.call("close", root, handle=made["handle"])
        ledgers.append(LedgerId(made["ledger"]))
    lost = await a_member(mixed_tree, client, ledgers[0], lost_kind)
    with mixed_tree.auto_recovery("quire"):
        await repaired(mixed_tree, peer, client, ledgers, lost)


async def a_member(
    tree: BookieTree, client: LedgerClient, ledger: LedgerId, kind: str
) -> BookieNode:
    """Return a bookie of a kind that is in the ledger's ensemble."""
    ensemble = (await client.describe(ledger)).last_fragment.ensemble
    nodes = tree.quire if kind == "quire" else tree.java
    return next(node for node in nodes if node.bookie_id in ensemble)


async def repaired(
    tree: BookieTree,
    peer: Peer,
    client: LedgerClient,
    ledgers: list[LedgerId],
    lost: BookieNode,
) -> None:
    """Kill a bookie; wait for full replication; read every copy of every entry."""
    await asyncio.to_thread(lost.kill)
    await forgotten(client, lost)
    async with asyncio.timeout(TIME_LIMIT_S):
        while not await are_moved(client, ledgers, lost):  # noqa: ASYNC110
            await asyncio.sleep(0.3)
        while await asyncio.to_thread(under_replicated, tree, peer):  # noqa: ASYNC110
            await asyncio.sleep(0.3)
    for ledger in ledgers:
        assert await count_copies(client, ledger) == 3 * ENTRIES
        assert await contents(await client.open(ledger)) == payloads(ENTRIES)
        opened = await asyncio.to_thread(peer.call, "open", tree.root, ledger=ledger)
        assert opened["closed"]
        read = await asyncio.to_thread(peer.read, tree.root, opened["handle"])
        assert read == payloads(ENTRIES)


async def are_moved(client: LedgerClient, ledgers: list[LedgerId], lost: BookieNode) -> bool:
    """Whether all are closed and none names the lost bookie."""
    for ledger in ledgers:
        metadata = await client.describe(ledger)
        if not metadata.is_closed:
            return False
        if any(lost.bookie_id in fragment.ensemble for fragment in metadata.fragments):
            return False
    return True


def under_replicated(tree: BookieTree, peer: Peer) -> list[str]:
    """Return what `listunderreplicated` lists."""
    printed = peer.shell(tree.root, "listunderreplicated")
    return [line for line in printed.splitlines() if line.strip().isdigit()]

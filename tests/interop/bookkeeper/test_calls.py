"""The less common calls, one by one: Apache's client on our bookies and ours on Apache's."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

from client.autorecovery.census import ask
from client.wire.bookkeeper.availability import Holdings
from client.wire.bookkeeper.messages import (
    BookieInfoRequest,
    BookieInfoResponse,
    ListEntriesRequest,
    ListEntriesResponse,
)
from tests.interop.bookkeeper.cluster import DB_STORAGE_NODE, BookieTree, ids
from tests.interop.bookkeeper.ours import contents, fill, forgotten, payload_of, payloads
from tests.interop.bookkeeper.peer import Peer


async def test_bookie_info_both_ways(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    """GET_BOOKIE_INFO: both kinds tell the same about one disk."""
    told = (await asyncio.to_thread(peer.call, "bookie_info", mixed_tree.root))["bookies"]
    assert sorted(told) == sorted(ids([*mixed_tree.nodes.values()]))
    assert len({info["total"] for info in told.values()}) == 1
    client = await ours(mixed_tree.root)
    for bookie in ids([*mixed_tree.nodes.values()]):
        request = BookieInfoRequest(total_capacity=True, free_space=True)
        answer = await ask(client.context.bookies, bookie, request)
        assert isinstance(answer, BookieInfoResponse)
        assert answer.total_capacity == told[bookie]["total"]
        assert 0 < (answer.free_space or 0) <= told[bookie]["total"]


@pytest.mark.parametrize("kind", ["quire", "java"])
async def test_list_of_entries_both_ways(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], kind: str
) -> None:
    """GET_LIST_OF_ENTRIES_OF_LEDGER: what the schedule says, read by either decoder.

    Apache's bookies with DbLedgerStorage never answer it.
    """
    nodes = mixed_tree.quire if kind == "quire" else mixed_tree.java
    listing = ids([node for node in nodes if node.name != DB_STORAGE_NODE])
    client = await ours(mixed_tree.root, only=listing)
    size = len(listing)
    writer = await client.create(ensemble_size=size, write_quorum=size - 1, ack_quorum=1)
    await fill(writer, 100)
    await writer.close()
    metadata = writer.metadata
    for member, bookie in enumerate(metadata.last_fragment.ensemble):
        wanted = [entry for entry in range(100) if member in metadata.schedule.write_set(entry)]
        answer = await ask(client.context.bookies, bookie, ListEntriesRequest(writer.ledger_id))
        assert isinstance(answer, ListEntriesResponse)
        assert answer.availability is not None
        holdings = Holdings(answer.availability)
        assert [entry for entry in range(100) if entry in holdings] == wanted
        there = {"ledger": writer.ledger_id, "bookie": bookie, "last": 99}
        listed = await asyncio.to_thread(peer.call, "entries", mixed_tree.root, **there)
        assert (listed["entries"], listed["total"]) == (wanted, len(wanted))


async def test_explicit_lac_of_a_java_writer_reaches_our_reader(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    """The last entry before a pause is seen, though no later entry says it is confirmed."""
    root = mixed_tree.root
    made = peer.call("create", root, e=4, qw=3, qa=2, conf={"explicitLacInterval": "50"})
    peer.call("append", root, handle=made["handle"], count=20)
    reader = await (await ours(root)).open(made["ledger"])
    async with asyncio.timeout(30):
        assert await reader.wait(18) == 19
    assert await contents(reader) == payloads(20)


async def test_explicit_lac_of_our_writer_reaches_a_java_reader(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    root = mixed_tree.root
    client = await ours(root, explicit_lac_interval_ms=50)
    writer = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
    await fill(writer, 20)
    opened = await asyncio.to_thread(peer.call, "open", root, ledger=writer.ledger_id)
    for call in ("lac", "explicit_lac"):
        async with asyncio.timeout(30):
            while True:
                found = await asyncio.to_thread(peer.call, call, root, handle=opened["handle"])
                if found["lac"] == 19:
                    break
                await asyncio.sleep(0.05)
    assert await asyncio.to_thread(peer.read, root, opened["handle"]) == payloads(20)


@pytest.mark.parametrize("parallel", [False, True])
async def test_long_polls_of_a_java_reader_on_our_writer(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any], parallel: bool
) -> None:
    """A poll that is parked before the entry exists brings the entry along."""
    root = mixed_tree.root
    client = await ours(root, explicit_lac_interval_ms=20)
    writer = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
    await writer.append(payload_of(0))
    opened = await asyncio.to_thread(peer.call, "open", root, ledger=writer.ledger_id)
    for entry in range(1, 6):
        poll = peer.start(
            "long_poll",
            root,
            handle=opened["handle"],
            entry=entry,
            timeout_ms=20_000,
            parallel=parallel,
        )
        await writer.append(payload_of(entry))
        told = await asyncio.to_thread(poll.result)
        assert told["lac"] == entry
        assert base64.b64decode(told["payload"]) == payload_of(entry)


async def test_our_tail_follows_a_java_writer(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    """Entry by entry, to the end of the ledger, which the writer closes."""
    root = mixed_tree.root
    made = peer.call("create", root, e=4, qw=3, qa=2, conf={"explicitLacInterval": "50"})
    reader = await (await ours(root)).open(made["ledger"])
    seen: list[bytes] = []

    async def follow() -> None:
        async for entry in reader.tail():
            seen.append(bytes(entry.payload))

    following = asyncio.ensure_future(follow())
    for count in (1, 30, 5):
        wanted = len(seen) + count
        there = {"handle": made["handle"], "count": count}
        await asyncio.to_thread(peer.call, "append", root, **there)
        async with asyncio.timeout(30):
            while len(seen) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    await asyncio.to_thread(peer.call, "close", root, handle=made["handle"])
    await asyncio.wait_for(following, 30)
    assert seen == payloads(36)


async def test_deferred_sync_and_force(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    """Acknowledged entries are confirmed by `force` alone; then everybody can read them."""
    root = mixed_tree.root
    made = peer.call("create", root, e=4, qw=4, qa=3, deferred_sync=True)
    appended = peer.call("append", root, handle=made["handle"], count=30)
    assert (appended["last"], appended["lac"]) == (29, -1)
    assert peer.call("force", root, handle=made["handle"])["lac"] == 29
    peer.call("append", root, handle=made["handle"], count=1)
    reader = await (await ours(root)).open(made["ledger"])
    assert reader.last_entry == 29, "the LAC in the entry after the force"
    assert await contents(reader) == payloads(30)
    peer.call("force", root, handle=made["handle"])
    peer.call("close", root, handle=made["handle"])
    opened = peer.call("open", root, ledger=made["ledger"])
    assert peer.read(root, opened["handle"]) == payloads(31)


@pytest.mark.parametrize("kind", ["quire", "mixed"])
def test_batch_reads(quire_tree: BookieTree, mixed_tree: BookieTree, peer: Peer, kind: str) -> None:
    """BATCH_READ_ENTRY over v2: many entries in one answer."""
    root = (quire_tree if kind == "quire" else mixed_tree).root
    conf = {"useV2WireProtocol": "true", "batchReadEnabled": "true"}
    made = peer.call("create", root, e=3, qw=3, qa=2, conf=conf)
    peer.call("append", root, handle=made["handle"], count=400)
    peer.call("close", root, handle=made["handle"])
    opened = peer.call("open", root, ledger=made["ledger"], conf=conf)
    found = peer.call("read", root, handle=opened["handle"], batch=True)
    assert [base64.b64decode(payload) for payload in found["payloads"]] == payloads(400)
    assert found["calls"] == 1


async def test_the_shell_sees_our_bookies(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    """listbookies, before and after a kill and read-only; cookies; the cluster's id and sums."""
    root = mixed_tree.root

    def listed(*flags: str) -> set[str]:
        return set(re.findall(r"BookieID:(\S+),", peer.shell(root, "listbookies", *flags)))

    everybody = set(ids([*mixed_tree.nodes.values()]))
    assert listed("-rw", "-h") == listed("-a") == everybody
    assert listed("-ro") == set()
    node = mixed_tree.quire[0]
    cookie = peer.shell(root, "cookie_get", node.bookie_id)
    instance_id = re.findall(r"InstanceId: (\S+)", peer.shell(root, "whatisinstanceid"))[0]
    assert f'bookieHost: "{node.bookie_id}"' in cookie
    assert f'instanceId: "{instance_id}"' in cookie
    assert f"127.0.0.1 : {node.port}" in peer.shell(root, "endpointinfo", "-b", node.bookie_id)
    client = await ours(root)
    await asyncio.to_thread(node.kill)
    await forgotten(client, node)
    assert listed("-rw") == everybody - {node.bookie_id}
    assert listed("-a") == everybody
    info = peer.shell(root, "clusterinfo")
    assert '"writableBookiesCount" : 5' in info
    assert '"unavailableBookiesCount" : 1' in info
    node.start("--disk-usage-threshold=0", "--disk-usage-warn-threshold=0")
    assert listed("-ro") == {node.bookie_id}
    assert listed("-rw") == everybody - {node.bookie_id}
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    assert listed("-rw") == everybody


async def test_java_reads_and_recovers_from_our_read_only_bookies(
    mixed_tree: BookieTree, peer: Peer, ours: Callable[..., Any]
) -> None:
    """A read-only bookie answers reads and fences, and takes the entries of a recovery."""
    root = mixed_tree.root
    made = peer.call("create", root, e=5, qw=4, qa=3)
    peer.call("append", root, handle=made["handle"], count=50)
    client = await ours(root)
    ensemble = (await client.describe(made["ledger"])).last_fragment.ensemble
    node = next(node for node in mixed_tree.quire if node.bookie_id in ensemble)
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start, "--disk-usage-threshold=0", "--disk-usage-warn-threshold=0")
    opened = await asyncio.to_thread(peer.call, "open", root, ledger=made["ledger"], recover=True)
    assert (opened["last"], opened["closed"]) == (49, True)
    assert await asyncio.to_thread(peer.read, root, opened["handle"]) == payloads(50)
    metadata = await client.describe(made["ledger"])
    assert node.bookie_id in metadata.last_fragment.ensemble
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)

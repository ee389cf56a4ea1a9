"""Four real bookies, one gone for good: every ledger is whole again without anybody acting."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from client.autorecovery.census import ask
from client.errors import NoSuchLedger
from client.ids import BookieId, EntryId, LedgerId
from client.ledger import connect
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from client.pubsub import Publisher, TopicAdmin
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import ReadRequest, ReadResponse
from ops.child import LEASH
from tests.fakes.clock import WallClock
from tests.integration.cluster import ROOT, LocalCluster, RealZooKeeper
from tests.integration.numbered import read_log

ENTRIES = 40
LEDGERS = 6
TIME_LIMIT_S = 90
QUICK = (
    "--recovery-poll-ms=300",
    "--recovery-retry-min-ms=300",
    "--recovery-open-ledger-grace-ms=1000",
)


class Processes:
    """Bookies, and auto recovery in them or beside them."""

    def __init__(self, folder: Path, zookeeper: str, tree: str) -> None:
        self.folder = folder
        self.tree = tree
        self.zookeeper = zookeeper
        self.running: dict[BookieId, subprocess.Popen[bytes]] = {}

    def start_bookie(self, name: str, *flags: str) -> None:
        self.start(
            name,
            *("bookie", f"--data-dir={self.folder / name}", "--host=127.0.0.1", "--port=0"),
            *(f"--bookie-id={name}", "--free-bytes-min=0", *flags),
        )

    def start(self, name: str, *program: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[BookieId(name)] = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                    *(sys.executable, "-m", *program, f"--zookeeper={self.zookeeper}"),
                    *(f"--ledgers-root={self.tree}", "--session-timeout-ms=2000"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def kill(self, name: BookieId) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all(self) -> None:
        for name in list(self.running):
            self.kill(name)


@pytest.fixture
async def store(zookeeper: RealZooKeeper) -> AsyncIterator[ZooKeeperStore]:
    store = ZooKeeperStore(zookeeper.hosts, session_timeout_ms=5000)
    await store.start()
    yield store
    await store.close()


@pytest.mark.parametrize("inside", [True, False], ids=["in bookies", "alone"])
async def test_a_bookie_gone_for_good_is_made_up_for(
    zookeeper: RealZooKeeper, store: ZooKeeperStore, tmp_path: Path, inside: bool
) -> None:
    tree = "/healing-inside" if inside else "/healing-alone"
    await init_bookkeeper(store, rng=random.Random(1), root=tree)
    processes = Processes(tmp_path, zookeeper.hosts, tree)
    try:
        for number in range(4):
            processes.start_bookie(f"b{number}", *(("--auto-recovery", *QUICK) if inside else ()))
        if not inside:
            processes.start("alone", "ops.autorecovery", *QUICK)
        client = LedgerClient(
            store,
            rng=random.Random(2),
            clock=WallClock(),
            config=LedgerClientConfig(ledgers_root=tree),
        )
        async with client, asyncio.timeout(TIME_LIMIT_S):
            await has_bookies(client, 4)
            ledgers = [await fill(client) for _ in range(LEDGERS)]
            opened = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
            lost = opened.metadata.last_fragment.ensemble[0]
            await opened.append(b"0")
            processes.kill(lost)  # and nobody writes to the open ledger any more
            everything = [*ledgers, opened.ledger_id]
            while not await is_whole(client, store, tree, everything, lost):  # noqa: ASYNC110
                await asyncio.sleep(0.3)
            for ledger_id in ledgers:
                assert await count_copies(client, ledger_id) == 2 * ENTRIES
                reader = await client.open(ledger_id)
                payloads = [bytes(entry.payload) async for entry in reader.entries()]
                assert payloads == [b"%d" % i for i in range(ENTRIES)]
            assert await count_copies(client, opened.ledger_id) == 2
    finally:
        processes.kill_all()


async def has_bookies(client: LedgerClient, count: int) -> None:
    while len(client.writable_bookies) < count:  # noqa: ASYNC110  a watch keeps the list
        await asyncio.sleep(0.05)


async def fill(client: LedgerClient) -> LedgerId:
    writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
    for number in range(ENTRIES):
        await writer.append(b"%d" % number)
    await writer.close()
    return writer.ledger_id


async def is_whole(
    client: LedgerClient,
    store: ZooKeeperStore,
    tree: str,
    ledgers: list[LedgerId],
    lost: BookieId,
) -> bool:
    """Whether no ledger names the lost bookie or has a mark."""
    for ledger_id in ledgers:
        metadata = await client.describe(ledger_id)
        if any(lost in fragment.ensemble for fragment in metadata.fragments):
            return False
        if await store.exists(paths.under_replicated_ledger(ledger_id, tree)) is not None:
            return False
    return True


async def count_copies(client: LedgerClient, ledger_id: LedgerId) -> int:
    """Read every copy of every entry from the bookie that should hold it."""
    metadata = await client.describe(ledger_id)
    assert metadata.digest_type is not None
    codec = EntryCodec(ledger_id, metadata.digest_type, b"")
    count = 0
    for entry_id in map(EntryId, range(metadata.last_entry + 1)):
        ensemble = metadata.fragment_of(entry_id).ensemble
        for member in metadata.schedule.write_set(entry_id):
            request = ReadRequest(ledger_id, entry_id)
            answer = await ask(client.context.bookies, ensemble[member], request)
            assert isinstance(answer, ReadResponse), answer
            assert answer.entry is not None
            codec.open(answer.entry, entry_id)
            count += 1
    return count


@pytest.mark.timeout(300)
async def test_one_of_four_bookies_of_quire_up_is_gone_for_good(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    """Nobody acts: auto recovery is on, and every record has all its copies again."""
    cluster = start_cluster(bookies=4, flags=["--no-restart"])
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create("healed", partition_count=3)
    records = [f"record {number}" for number in range(300)]
    async with Publisher(cluster.bootstrap_servers) as publisher:
        for record in records:
            await publisher.enqueue("healed", record.encode())
        await publisher.flush()
    async with connect(cluster.zookeeper) as client:
        named = [ledger_id async for ledger_id in client.ledgers()]
        members = [await client.describe(ledger_id) for ledger_id in named]
        counts = Counter(b for each in members for f in each.fragments for b in f.ensemble)
        [(lost, _)] = counts.most_common(1)
        index = [bookie["id"] for bookie in cluster.about["bookies"]].index(lost)
        cluster.kill(f"bookie-{index}")
        async with asyncio.timeout(TIME_LIMIT_S):
            while not await is_rid_of(client, lost):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        for ledger_id in [ledger_id async for ledger_id in client.ledgers()]:
            metadata = await client.describe(ledger_id)
            if metadata.is_closed:
                wanted = metadata.write_quorum * (metadata.last_entry + 1)
                assert await count_copies(client, ledger_id) == wanted
    log = await asyncio.to_thread(read_log, cluster.bootstrap_servers, "healed", 3)
    assert {value for partition in log.values() for _, value in partition} == set(records)


async def is_rid_of(client: LedgerClient, lost: BookieId) -> bool:
    """Whether no ledger names the lost bookie."""
    async for ledger_id in client.ledgers():
        try:
            metadata = await client.describe(ledger_id)
        except NoSuchLedger:
            continue
        if any(lost in fragment.ensemble for fragment in metadata.fragments):
            return False
    return True

"""Rounds of garbage collection: what leaves, what stays, and what happens when something fails."""

from __future__ import annotations

import asyncio
import random

from bookie.membership.cluster_ledgers import ClusterLedgers
from bookie.membership.garbage import GarbageCollection, GarbageLimits
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from client.ledger.core.metadata_codec import encode
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import Fault, MemoryCluster, Operation
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import DELETION_MEMORY_MS, NOW_MS, add, fence, read, settle
from tests.fakes.clock import FakeClock
from tests.fakes.ledger_directories import DirectoryRack

ME, OTHER = BookieId("me:1"), BookieId("other:1")
FILE_BYTES = 1000
LIMITS = GarbageLimits(
    wait_s=3600.0,
    overreplicated_wait_s=0.0,
    minor_threshold=0.2,
    minor_interval_s=0.0,
    major_threshold=0.8,
    major_interval_s=3600.0,
    deletion_memory_ms=DELETION_MEMORY_MS,
)


class Bench:
    """A bookie's storage, a metadata store, and the garbage collection between them."""

    def __init__(self, directories: int = 1) -> None:
        self.rack = DirectoryRack(directories, FILE_BYTES)
        self.memory = MemoryCluster()
        self.store = self.memory.session()
        self.clock = FakeClock(NOW_MS)
        self.garbage: GarbageCollection

    async def start(self, limits: GarbageLimits = LIMITS) -> Bench:
        await self.rack.start()
        self.instance_id = await init_bookkeeper(self.store, rng=random.Random(1))
        self.garbage = GarbageCollection(
            self.rack.ledger_directories,
            ClusterLedgers(self.store, ME, instance_id=self.instance_id, root="/ledgers"),
            limits,
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            metrics=self.rack.metrics,
        )
        return self

    async def write(self, ledger: int, entries: int = 1, size: int = 100) -> None:
        for entry in range(entries):
            assert await self.rack.status(add(ledger, entry, bytes(size))) is Status.OK
        await settle()

    async def list(self, ledger: int, *members: BookieId, closed: bool = True) -> None:
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            state=LedgerState.CLOSED if closed else LedgerState.OPEN,
            fragments=tuple(Fragment(EntryId(n), (m,)) for n, m in enumerate(members or (ME,))),
        )
        path = paths.ledger(LedgerId(ledger))
        await self.store.create(path, encode(metadata), make_parents=True)

    async def unlist(self, ledger: int) -> None:
        await self.store.delete(paths.ledger(LedgerId(ledger)))

    @property
    def ledgers(self) -> list[int]:
        return list(self.rack.ledger_directories.ledger_ids)

    def log_files(self) -> int:
        return sum(name.startswith("log/") for bay in self.rack.bays for name in bay.volume.files)


async def test_ledgers_that_the_cluster_deleted_go_with_their_files() -> None:
    bench = await Bench().start()
    await bench.write(1, 20)
    await bench.write(2)
    await bench.list(1)
    await bench.list(2)
    await bench.garbage.round()
    assert bench.ledgers == [1, 2]
    files = bench.log_files()
    await bench.unlist(1)
    await bench.garbage.round()
    assert bench.ledgers == [2]
    assert await bench.rack.status(read(1, 3)) is Status.NO_LEDGER
    assert await bench.rack.status(read(2, 0)) is Status.OK
    assert bench.log_files() <= 2 < files
    assert bench.rack.metrics.gc_rounds == 2


async def test_a_ledger_born_while_the_cluster_is_asked_survives() -> None:
    """Its node is made, then its entry arrives: both after the local ledgers were listed."""
    bench = await Bench().start()
    await bench.write(1)

    def born(operation: Operation) -> None:
        if operation.name == "get":
            bench.rack.ledger_directories.add(add(5, 0), lambda status: None)

    bench.memory.on_request = born
    await bench.garbage.round()
    assert bench.ledgers == [5]


async def test_12_a_tree_that_loses_directories_costs_no_ledger(monkeypatch) -> None:
    bench = await Bench().start()
    for ledger in range(3):
        await bench.write(ledger)
        await bench.list(ledger)
    children = bench.store.children
    answers: list[list[str]] = [[], ["L9999"]]

    async def wrong(path: str, watcher: object = None) -> list[str]:
        return answers.pop() if answers else await children(path)

    monkeypatch.setattr(bench.store, "children", wrong)
    for _ in range(3):
        await bench.garbage.round()
        assert bench.ledgers == [0, 1, 2]


async def test_while_the_store_is_away_space_is_still_given_back() -> None:
    bench = await Bench().start()
    await bench.write(1, 20)
    await bench.list(1)
    await bench.write(2)
    await bench.rack.ledger_directories.delete(LedgerId(2), 1)
    await bench.rack.ledger_directories.delete(LedgerId(1), 1)
    await bench.write(3)
    files = bench.log_files()
    bench.memory.on_request = lambda operation: Fault.LOSE_REQUEST
    bench.garbage.start()
    bench.garbage.ask()
    async with asyncio.timeout(10):
        while bench.log_files() == files:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert bench.ledgers == [3]
    await bench.garbage.stop()


async def test_a_wiped_store_deletes_nothing(caplog) -> None:
    bench = await Bench().start()
    await bench.write(1)
    await bench.store.set(paths.instance_id(), b"a new cluster")
    bench.garbage.start()
    bench.garbage.ask()
    await settle(200)
    await bench.garbage.stop()
    assert "gc.round_failed" in caplog.text
    assert bench.ledgers == [1]


async def test_over_replicated_ledgers_go_after_a_quiet_round() -> None:
    bench = await Bench().start()
    for ledger in (1, 2, 3):
        await bench.write(ledger)
    await bench.list(1, OTHER)
    await bench.list(2, OTHER, ME)
    await bench.list(3, OTHER, closed=False)
    await bench.garbage.round()
    assert bench.ledgers == [1, 2, 3]
    await bench.garbage.round()
    assert bench.ledgers == [2, 3]
    locks = paths.replication_locks()
    assert await bench.store.children(locks) == []


async def test_4668_a_ledger_that_is_being_copied_here_stays() -> None:
    """By a lock, by a mark, or because entries arrive; and the metadata is read again."""
    bench = await Bench().start()
    for ledger in (1, 2, 3, 4):
        await bench.write(ledger)
        await bench.list(ledger, OTHER)
    await bench.garbage.round()
    lock = paths.replication_lock(LedgerId(1))
    await bench.store.create(lock, b"somebody", ephemeral=True, make_parents=True)
    mark = paths.under_replicated_ledger(LedgerId(2))
    await bench.store.create(mark, b"", make_parents=True)
    await bench.rack.status(add(3, 1, recovery=True))
    moved = encode(
        LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            state=LedgerState.CLOSED,
            fragments=(Fragment(EntryId(0), (ME,)),),
        )
    )

    def move_under_the_lock(operation: Operation) -> None:
        if operation.name == "create" and operation.path == paths.replication_lock(LedgerId(4)):
            bench.memory.tree.set(paths.ledger(LedgerId(4)), moved, -1)

    bench.memory.on_request = move_under_the_lock
    await bench.garbage.round()
    assert bench.ledgers == [1, 2, 3, 4]


async def test_metadata_that_cannot_be_read_keeps_its_ledger() -> None:
    bench = await Bench().start()
    await bench.write(1)
    await bench.write(2)
    path = paths.ledger(LedgerId(1))
    await bench.store.create(path, b"what is this", make_parents=True)
    await bench.list(2, OTHER)
    for _ in range(2):
        await bench.garbage.round()
    assert bench.ledgers == [1]


async def test_tombstones_are_forgotten_after_their_time() -> None:
    bench = await Bench().start()
    await bench.write(1)
    await bench.rack.status(fence(1))
    await bench.garbage.round()
    assert await bench.rack.status(add(1, 9)) is Status.FENCED
    bench.clock.ms += DELETION_MEMORY_MS
    await bench.garbage.round()
    assert await bench.rack.status(add(1, 9)) is Status.FENCED
    bench.clock.ms += 1
    await bench.garbage.round()
    assert await bench.rack.status(add(1, 9)) is Status.OK


async def test_files_are_rewritten_when_that_is_due_asked_for_and_not_suspended() -> None:
    bench = await Bench().start(LIMITS._replace(minor_interval_s=3600.0))
    await bench.list(2)
    for n in range(10):
        await bench.write(1, 1, 400)
        await bench.rack.status(add(2, n, bytes(100)))
    await bench.write(3, 1, FILE_BYTES)
    await bench.list(3)
    await bench.garbage.round()
    rewritten = bench.rack.metrics.rewritten_file_bytes
    assert rewritten == 0
    bench.garbage.major.is_suspended = True
    bench.garbage.ask(major=True)
    await bench.garbage.round()
    assert bench.rack.metrics.rewritten_file_bytes == 0
    bench.garbage.major.is_suspended = False
    await bench.garbage.round()
    assert bench.rack.metrics.rewritten_file_bytes > 0
    assert (bench.garbage.major.count, bench.garbage.major.last_ms) == (1, bench.clock.now_ms())
    for n in range(10):
        assert await bench.rack.status(read(2, n)) is Status.OK
    assert not bench.garbage.major.is_due(asyncio.get_running_loop().time())


async def test_rounds_come_by_themselves_and_when_asked_for() -> None:
    bench = await Bench().start(LIMITS._replace(wait_s=0.02))
    bench.garbage.start()
    async with asyncio.timeout(10):
        while bench.rack.metrics.gc_rounds < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await bench.garbage.stop()
    bench = await Bench().start()
    bench.garbage.start()
    bench.garbage.ask(minor=True)
    assert bench.garbage.is_forced
    async with asyncio.timeout(10):
        while bench.rack.metrics.gc_rounds < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await settle()
    assert not bench.garbage.is_forced
    bench.garbage.space_is_scarce()
    await settle()
    assert bench.rack.metrics.gc_rounds == 1
    await bench.garbage.stop()


async def test_scarce_space_asks_once_at_first() -> None:
    bench = await Bench().start()
    bench.garbage.space_is_scarce()
    assert bench.garbage.is_forced
    assert bench.garbage.major.is_asked_for


async def test_scarce_space_does_not_make_one_long_round_follow_the_other() -> None:
    """The disk is looked at every few seconds; a thorough round may take hours."""
    bench = await Bench().start()
    await bench.write(1)
    await bench.list(1)
    bench.garbage.start()
    asked: list[bool] = []

    def while_it_runs(operation: Operation) -> None:
        bench.garbage.space_is_scarce()
        asked.append(bench.garbage._wake.is_set())

    bench.memory.on_request = while_it_runs
    bench.garbage.ask(minor=True)
    async with asyncio.timeout(10):
        while bench.rack.metrics.gc_rounds < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert asked
    assert not any(asked)
    await bench.garbage.stop()


async def test_a_failed_disk_is_left_alone_and_the_others_give_space_back() -> None:
    bench = await Bench(directories=2).start()
    for ledger in (0, 1):
        await bench.write(ledger, 30)
        await bench.list(ledger)
    await bench.garbage.round()
    for ledger in (0, 1):
        await bench.unlist(ledger)
    broken, sound = bench.rack.bays
    storage = bench.rack.ledger_directories.directories[0].storage
    storage.is_failed = True
    before = dict(broken.volume.files)
    await bench.garbage.round()
    assert broken.volume.files == before
    assert sum(name.startswith("log/") for name in sound.volume.files) <= 2
    # Files without life are not given back either, though the index may know of some.
    storage.is_failed = False
    await bench.garbage._delete([LedgerId(0)])
    storage.is_failed = True
    before = dict(broken.volume.files)
    await bench.garbage.round()
    assert broken.volume.files == before

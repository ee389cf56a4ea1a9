"""A round of compaction ends at every single one of its effects, and nothing is lost by it.

A partition with overwritten keys and tombstones, its list in pages, is compacted: a round that
rewrites it, one that drops the tombstones, and one that lets the old ledgers go. Every effect of
that on ledgers and on the metadata store is a step: a ledger created, an entry that arrives, a
close, a deletion, a page made, a list set. At step k

    the broker dies     nothing of it reaches anybody from then on; another one takes over
    the cleaner dies    its round ends where it is, as its process would; its broker leads on
    the answer is lost  the store does what is asked and the connection breaks, or it does not
    the call fails      the ledger service refuses

Then every key must end with its last value, for a reader by the list as it is and for one by the
list as it was; what was begun must be finished by the next round; and once the epoch has grown, the
sweep must leave nothing but what is listed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.errors import BrokerError
from broker.leadership.orphan_ledgers import OrphanLedgers
from client.errors import LedgerError, LogCorrupt, MetadataError, WriteFailed
from client.ids import BrokerId, Offset
from client.log.segment_pages import decode_page
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from tests.fakes.brokers import Broker, World, done, forget_cache, settle
from tests.fakes.keyed import Kept, keyed, newest, read_keyed
from tests.fakes.virtual_time import run

if TYPE_CHECKING:
    from broker.cluster.core.topology import TopicInfo
    from broker.partition.partition import Partition
    from client.log.segments import Segment, SegmentList

GRACE_MS = 500
KEYS = ("a", "b", "c")
BATCHES = (
    (("a", "0"), ("gone", "0")),
    (("a", "1"), ("b", "1")),
    (("gone", None), ("c", "2")),
    (("a", "3"), ("b", "3"), ("c", "3")),
    (("b", None),),
    (("a", "5"),),
    (("c", "6"), ("d", "6")),
    (("a", "7"),),
    (("d", "8"),),
)
WRITES = ("create", "set", "delete", "multi")
SERVICE = ("create", "close", "delete")
HOW = ("the broker dies", "the cleaner dies", "the answer is lost", "the request is lost", "fails")
SWEEP_STEP = 3
"""The short form visits every so many steps."""


@dataclass(slots=True)
class Bomb:
    """What happens at which step of the compaction."""

    at: int
    how: str
    steps: list[str] = field(default_factory=list)
    is_armed: bool = False
    has_struck: bool = False


class Matrix:
    """One partition, one bomb."""

    def __init__(self, bomb: Bomb) -> None:
        self.bomb = bomb
        self.world = World(segment_page_entries=2)
        self.topic: TopicInfo
        self.broker: Broker
        self.partition: Partition
        self.written: list[Kept] = []
        self._broker_count = 0
        self._cleaner: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------- steps

    def _step(self, what: str) -> str:
        """Count an effect; return how it goes wrong, if it does."""
        bomb = self.bomb
        if not bomb.is_armed:
            return ""
        bomb.steps.append(what)
        if len(bomb.steps) - 1 != bomb.at:
            return ""
        bomb.has_struck = True
        if bomb.how == "the broker dies":
            self.broker.kill()
        if bomb.how in ("the broker dies", "the cleaner dies"):
            assert self._cleaner is not None
            self._cleaner.cancel()
        return bomb.how

    def _on_request(self, operation: Operation) -> Fault | None:
        if operation.name not in WRITES:
            return None
        how = self._step(f"{operation.name} {operation.path}")
        if how == "the answer is lost":
            return Fault.LOSE_REPLY
        return Fault.LOSE_REQUEST if how in ("the broker dies", "the request is lost") else None

    def _hook(self) -> None:
        service = self.world.backend.service
        enter = service.enter

        async def stepped(operation: str) -> None:
            if operation in SERVICE:
                how = self._step(operation)
                if how == "the broker dies":
                    await asyncio.get_running_loop().create_future()
                if how == "fails":
                    raise WriteFailed("planted")
            await enter(operation)

        def arrives() -> float:
            how = self._step("add")
            if how == "fails":
                writer = self.broker.ledgers.writers[-1]
                writer.fail_add = WriteFailed("planted")
            return 0.0

        service.enter = stepped
        service.arrival_s = arrives
        self.world.cluster.on_request = self._on_request

    # ---------------------------------------------------------------- a partition's life

    async def begin(self) -> None:
        """Write a log of several segments."""
        await self.world.start()
        self.topic = await self.world.topic(
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0",
            delete_retention_ms="0",
            segment_bytes="700",
        )
        await self.take_over()
        for pairs in BATCHES:
            await self.write(*pairs)
        self._hook()

    async def write(self, *pairs: tuple[str, str | None]) -> None:
        """Append a batch in a segment of its own."""
        now_ms = self.world.clock.now_ms()
        base = await done(self.partition.append(keyed(*pairs, timestamp_ms=now_ms)))
        self.written += [Kept(base + at, key, value) for at, (key, value) in enumerate(pairs)]
        await self.partition.changes.roll()

    async def take_over(self) -> None:
        """Let a new broker lead; the old one is killed."""
        if self._broker_count:
            self.broker.kill()
        self._broker_count += 1
        self.broker = await self.world.broker(self._broker_count, owning=False)
        while True:
            try:
                self.partition = await self.broker.open(self.topic)
            except (BrokerError, LedgerError, MetadataError):
                await asyncio.sleep(0.1)
            else:
                return

    async def compact(self) -> None:
        """Have a round, a second one for tombstones, and one that lets ledgers go."""
        settings = CompactionConfig(grace_ms=GRACE_MS, bytes_per_s=0)
        cleaner = Compactor(self.broker.services, [self.partition], settings)
        for _ in range(3):
            await self._lease()
            cleaner.ask(self.partition)
            await cleaner.visit_all()
            await settle()
            await asyncio.sleep((GRACE_MS + 1) / 1000)

    async def _lease(self) -> None:
        while True:
            try:
                await self.broker.services.lease.ask(self.broker.store)
            except MetadataError:
                await asyncio.sleep(0.1)
            else:
                return

    async def strike(self) -> None:
        """Compact until the bomb goes off."""
        self.bomb.is_armed = True
        self._cleaner = asyncio.get_running_loop().create_task(self.compact())
        await asyncio.wait([self._cleaner], timeout=100.0)
        await settle()
        self.bomb.is_armed = False
        if self._cleaner.done() and not self._cleaner.cancelled():
            self._cleaner.result()

    # ---------------------------------------------------------------- what must hold

    def listed(self) -> SegmentList:
        """Return the list as the store has it."""
        return self.world.segments(self.topic)

    def ledgers(self) -> dict[int, Segment]:
        """Return every segment that the list names, by ledger."""
        listed = self.listed()
        found = [*listed.oldest, *listed.segments]
        left = [*listed.pages]
        path = paths.partition(self.topic.id_text, 0)
        while left:
            ref = left.pop()
            node = self.world.cluster.tree.get(paths.segment_page(path, *ref.name))
            page = decode_page(node.data, ref)
            found += page.segments
            left += page.pages
        return {segment.ledger_id: segment for segment in found}

    def check_listed(self) -> None:
        """Whatever is listed, or waits for its grace, is there."""
        there = {*self.world.ledger_ids()}
        wanted = {*self.ledgers(), *(one.ledger_id for one in self.listed().compaction.retired)}
        assert wanted <= there, f"{wanted - there} are gone"

    async def check_read(self) -> None:
        """Every key ends with its last value, and what is shown was written."""
        forget_cache(self.partition)
        found = await read_keyed(self.partition)
        assert {*found} <= {*self.written}
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        ended = newest(found)
        for key, last in newest(self.written).items():
            if last.value is not None:
                assert ended.get(key) == last
            else:
                assert ended.get(key, last) == last

    async def check_old_list(self, old: SegmentList) -> None:
        """A reader by an older list goes on, unless a page or the grace of its ledgers is over."""
        reader, offset = self.partition.reader.log, Offset(0)
        while offset < self.partition.high_watermark:
            try:
                found = await reader.read(
                    old, offset, self.partition.high_watermark, 1 << 20, at_least_one=True
                )
            except (BrokerError, LogCorrupt) as error:
                assert "NoSuchLedger" in str(error) or "NoNode" in str(error)
                return
            assert found.next_offset > offset
            offset = found.next_offset

    async def finish(self) -> None:
        """Compact in peace: all is clean, nothing is left behind."""
        await self.compact()
        await self.check_read()
        await self.take_over()
        await self.compact()
        listed = self.listed()
        assert listed.compaction.retired == ()
        assert listed.compaction.next_horizon_ms < 0
        found = await read_keyed(self.partition)
        clean = [one for one in found if one.offset < listed.compaction.cleaned_until]
        assert len(clean) == len(newest(clean))
        assert all(one.value is not None for one in clean)
        assert len(found) < len(self.written)
        await self.sweep()
        known = self.ledgers()
        left = [one for one in self.world.ledger_ids() if one not in known]
        assert left == []
        await self.check_read()

    async def sweep(self) -> None:
        """Look for what nobody lists."""

        class Alone:
            brokers = (BrokerId(1),)

        client = self.world.backend.service.client("sweep")
        sweeper = OrphanLedgers(self.world.cluster.session(), client, Alone(), BrokerId(1))
        await sweeper.sweep()
        await sweeper.sweep_pages()


def end_at(at: int, how: str) -> Bomb:
    """Let one compaction end at a step; return what it met."""
    bomb = Bomb(at, how)

    async def life() -> None:
        matrix = Matrix(bomb)
        await matrix.begin()
        before = matrix.listed()
        await matrix.strike()
        matrix.check_listed()
        if matrix.broker.dead or not matrix.partition.is_open:
            await matrix.take_over()
        await matrix.check_read()
        await matrix.check_old_list(before)
        matrix.check_listed()
        await matrix.finish()
        await matrix.world.close()

    run(life())
    return bomb


def all_steps() -> list[str]:
    """Return the steps of a compaction in which nothing goes wrong."""
    return end_at(-1, "").steps


def visit(steps: range, how: str) -> int:
    """End at every one of these steps; return how many were met."""
    met = 0
    for at in steps:
        bomb = end_at(at, how)
        met += bomb.has_struck
    return met


def test_a_compaction_has_all_kinds_of_steps() -> None:
    steps = all_steps()
    kinds = {step.partition(" ")[0] for step in steps}
    assert kinds >= {"create", "add", "close", "set", "delete"}
    assert any("/pages/" in step for step in steps)
    assert len(steps) > 40


@pytest.mark.parametrize("how", HOW)
def test_it_ends_at_some_steps(how: str) -> None:
    steps = range(HOW.index(how), len(all_steps()), SWEEP_STEP * len(HOW))
    assert visit(steps, how) == len(steps)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_it_ends_at_every_step(how: str) -> None:
    steps = range(len(all_steps()))
    assert visit(steps, how) == len(steps)

"""One partition, one coordinator, a producer that does not wait: nothing stays open at the end.

Questions, answers, batches and markers take any time, some come twice, leaders change.
The producer speaks the classic protocol, in which its transactions look alike, so that only VERIFY
and GUARD tell a late batch from one of the next transaction.
"""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import BrokerError, TransactionAbortable
from broker.partition.core.append_queue import Append
from broker.partition.core.held_batches import VerificationRequest
from broker.partition.partition import Partition
from client.ids import Offset
from tests.fakes.brokers import Broker, World, settle
from tests.fakes.transactions import end, send
from tests.fakes.virtual_time import run


class Coordinator:
    """Knows whether the partition is part of an ongoing transaction."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.is_ongoing = False

    async def pause(self, longest_s: float = 9.0) -> None:
        await asyncio.sleep(self._rng.choice((0, 0.1, 0.3)) * longest_s)

    async def verify(self, request: VerificationRequest) -> int:
        await self.pause(1.0)
        is_ongoing = self.is_ongoing
        await self.pause(30.0)
        if not is_ongoing:
            raise TransactionAbortable("it is no part of the transaction")
        return 1


class Play:
    """A producer's transactions, one after the other."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.coordinator = Coordinator(rng)
        self.partition: Partition
        self.late: list[asyncio.Task[None]] = []
        self.sequence = 0

    async def begin(self) -> None:
        self.topic = await self.world.topic()
        self.brokers = [await self.world.broker(number, owning=False) for number in (1, 2)]
        for broker in self.brokers:
            broker.services.coordinators.verifier = self.coordinator
        self.broker: Broker = self.brokers[0]
        self.partition = await self.broker.open(self.topic)

    async def transaction(self) -> None:
        """Send some batches, perhaps without waiting for them, and end it."""
        self.coordinator.is_ongoing = True
        sent: list[asyncio.Task[bool]] = []
        for _ in range(self.rng.randrange(4)):
            sequence = self.sequence
            task = asyncio.create_task(self.send(sequence, is_slow=self.rng.random() < 0.3))
            sent.append(task)
            if self.rng.random() < 0.3:
                self.late.append(asyncio.create_task(self.again(sequence)))
            if self.rng.random() < 0.5 and not await task:
                break
            self.sequence += 1
        if self.rng.random() < 0.2:
            await self.take_over()
        if self.rng.random() < 0.3:
            await asyncio.gather(*sent)
        await self.coordinator.pause()
        self.coordinator.is_ongoing = False
        await self.coordinator.pause()
        commit = self.rng.random() < 0.5
        while not await self.mark(commit):
            pass
        if self.rng.random() < 0.2:
            await self.mark(commit)
        if not all(await asyncio.gather(*sent)):
            await self.renew()
        elif self.rng.random() < 0.5:
            return
        await self.check()

    async def check(self) -> None:
        """All that was on its way has come, and the coordinator has nothing to end any more."""
        await asyncio.gather(*self.late)
        await asyncio.sleep(60)
        await settle()
        partition = self.partition
        assert partition.transactions.open_transactions() == []
        assert partition.last_stable_offset == partition.high_watermark
        assert len(partition._leader.log.held) == 0

    async def renew(self) -> None:
        """As a client does whose batches were refused: sequences go on where the log is."""
        await asyncio.sleep(20)
        last = [one.last_sequence for one in self.partition.transactions.producers()]
        self.sequence = max(last, default=-1) + 1

    async def send(self, sequence: int, *, is_slow: bool = False) -> bool:
        """A batch that may be on its way for so long that its client has given it up."""
        if is_slow:
            await self.coordinator.pause()
        try:
            await _done(send(self.partition, sequence=sequence))
        except BrokerError:
            return False
        return True

    async def again(self, sequence: int) -> None:
        """A copy of the batch, over another connection."""
        await self.coordinator.pause()
        await self.send(sequence)

    async def mark(self, commit: bool) -> bool:
        await self.coordinator.pause()
        partition = self.partition
        try:
            await end(partition, commit=commit, leader_epoch=partition.leader_epoch)
        except BrokerError:
            return False
        return True

    async def take_over(self) -> None:
        self.broker = self.brokers[1 - self.brokers.index(self.broker)]
        self.partition = await self.broker.open(self.topic)


async def _done(append: Append) -> Offset:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    append.on_done(lambda _: done.done() or done.set_result(None))  # type: ignore[func-returns-value]
    await done
    if append.error is not None:
        raise append.error
    return append.base_offset


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 32))
def test_nothing_is_open_when_every_transaction_has_ended(seed: int) -> None:
    async def scenario() -> None:
        world = await World().start()
        play = Play(world, random.Random(seed))
        try:
            await play.begin()
            for _ in range(6):
                await play.transaction()
            await play.check()
        finally:
            await world.close()

    run(scenario())

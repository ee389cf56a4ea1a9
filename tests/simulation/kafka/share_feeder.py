"""Who writes what members of share groups get: plain producers, transactional ones, and whoever
deletes records.

None of them knows or minds what became of a request: the log says what there is to deliver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.wire.kafka.batches.records import Record, build_batch
from tests.simulation.kafka import transaction_link as wire
from tests.simulation.kafka.connection import KafkaLink
from tests.simulation.kafka.guide import PAUSE_S, SILENCE_S, TROUBLE, Guide
from tests.simulation.kafka.transaction_link import ProducerKey, TransactionLink
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from client.ids import ProducerId

TRANSACTION_MS = 1_500
"""How long a transaction may be open."""


class Feeder:
    """One process that writes into a topic and deletes from it."""

    def __init__(
        self,
        name: str,
        topic: str,
        partitions: int,
        guide: Guide,
        rng: random.Random,
        count: Callable[[str], None],
        *,
        records_max: int,
        think_s: float,
        keys: int,
    ) -> None:
        """`keys`: how many there are; 0: records have none."""
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._guide = guide
        self._rng = rng
        self._count = count
        self._records_max = records_max
        self._think_s = think_s
        self._keys = keys
        self._number = 0
        self._ends: dict[int, int] = {}
        """An offset before the end of each partition, as far as is known."""

    async def write(self, is_over: Callable[[], bool]) -> None:
        """Write batches until it is over."""
        while not is_over():
            await asyncio.sleep(self._rng.expovariate(1 / self._think_s))
            index = self._rng.randrange(self._partitions)
            try:
                link, _ = await self._guide.connect(index)
                try:
                    await self._produce(link, index, build_batch(self._records()))
                finally:
                    link.close()
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)

    def _records(self) -> list[Record]:
        count = self._rng.randint(1, self._records_max)
        self._number += count
        numbers = range(self._number - count, self._number)
        return [
            Record(self._key(), f"{self._name}:{number}".encode(), SimClock.EPOCH_MS)
            for number in numbers
        ]

    def _key(self) -> bytes | None:
        return b"k%d" % self._rng.randrange(self._keys) if self._keys else None

    async def _produce(self, link: KafkaLink, index: int, batch: bytes) -> None:
        link.send_produce(self._topic, index, batch, int(SILENCE_S * 1000))
        code, base = await link.produced(SILENCE_S)
        if not code:
            self._count("batches written")
            self._ends[index] = max(base, self._ends.get(index, 0))

    # --- transactions ---------------------------------------------------------------------------

    async def transact(self, name: str, abort_p: float, is_over: Callable[[], bool]) -> None:
        """Write transactions until it is over."""
        while not is_over():
            await asyncio.sleep(self._rng.expovariate(1 / self._think_s))
            try:
                await self._transaction(name, is_aborted=self._rng.random() < abort_p)
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)

    async def _transaction(self, name: str, *, is_aborted: bool) -> None:
        """Write one. Raises what clients meet: whatever it was at is aborted by the next one, or
        when its time is up."""
        coordinator = await self._coordinator(name)
        try:
            begin = wire.init_producer(name, TRANSACTION_MS, None, generation=1)
            key = wire.read_producer(await coordinator.ask(begin, SILENCE_S))
            indexes = sorted(
                {self._rng.randrange(self._partitions) for _ in range(self._rng.randint(1, 2))}
            )
            added = wire.add_partitions(name, key, self._topic, indexes)
            wire.read_added(await coordinator.ask(added, SILENCE_S))
            for index in indexes:
                await self._send(name, key, index)
            end = wire.end_transaction(name, key, commit=not is_aborted, generation=1)
            answer = await coordinator.ask(end, SILENCE_S)
            wire.read_ended(answer, key, generation=1)
            self._count("transactions aborted" if is_aborted else "transactions committed")
        finally:
            coordinator.close()

    async def _coordinator(self, name: str) -> TransactionLink:
        async def connect(host: str) -> TransactionLink:
            return await TransactionLink.connect(host, SILENCE_S)

        asked = await connect(self._guide.any_host())
        try:
            question = wire.find_coordinator(name, wire.TRANSACTION_KEY)
            host = wire.read_coordinator(await asked.ask(question, SILENCE_S))
        finally:
            asked.close()
        return await connect(host)

    async def _send(self, name: str, key: ProducerKey, index: int) -> None:
        leader = await self._guide.leader(index)
        if leader is None:
            raise TimeoutError
        link = await TransactionLink.connect(leader.host, SILENCE_S)
        sequence = 0
        try:
            for _ in range(self._rng.randint(1, 2)):
                records = self._records()
                producer_id: ProducerId = key.producer_id  # type: ignore[assignment]
                batch = build_batch(
                    records,
                    producer_id=producer_id,
                    producer_epoch=key.epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
                sequence += len(records)
                request = wire.produce(
                    name, self._topic, index, batch, int(SILENCE_S * 1000), generation=1
                )
                wire.read_produced(await link.ask(request, SILENCE_S), generation=1)
        finally:
            link.close()

    # --- deletions ------------------------------------------------------------------------------

    async def trim(
        self, every_s: float, tell: Callable[[int, int], None], is_over: Callable[[], bool]
    ) -> None:
        """Delete records until it is over. `tell`: is told before what is to go."""
        while not is_over():
            await asyncio.sleep(self._rng.expovariate(1 / every_s))
            index = self._rng.randrange(self._partitions)
            offset = self._rng.randrange(self._ends.get(index, 0) + 1)
            try:
                link, _ = await self._guide.connect(index)
                try:
                    tell(index, offset)
                    await link.delete_records(self._topic, index, offset, SILENCE_S)
                    self._count("trims")
                finally:
                    link.close()
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)

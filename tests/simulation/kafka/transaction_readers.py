"""Readers of committed data in simulations: they filter answers as Kafka's clients do."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.simulation.kafka.connection import (
    EARLIEST,
    LATEST,
    OUT_OF_RANGE,
    Fetched,
    KafkaLink,
    Refused,
)
from tests.simulation.kafka.entries import batches_of
from tests.simulation.kafka.guide import TROUBLE, visit

if TYPE_CHECKING:
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.kafka.entries import Batch
    from tests.simulation.kafka.guide import Guide
    from tests.simulation.transactions.book import Place, TransactionBook

_SILENCE_S = 2.0
_PAUSE_S = 0.05


class Filtered(NamedTuple):
    """A batch of a fetch's answer."""

    batch: Batch
    is_shown: bool


def filtered(got: Fetched, position: int) -> list[Filtered]:
    """Tell which batches of data the aborted list of the answer hides."""
    waiting = sorted(got.aborted, key=lambda aborted: aborted.first_offset)
    hidden: set[int] = set()
    found = []
    for batch in batches_of(got.records):
        if batch.next_offset <= position:
            continue
        while waiting and waiting[0].first_offset < batch.next_offset:
            hidden.add(waiting.pop(0).producer_id)
        producer_id = batch.producer[0]
        if batch.attributes & CONTROL_BIT:
            if not read_marker(batch.data).is_commit:
                hidden.discard(producer_id)
        else:
            is_transactional = bool(batch.attributes & TRANSACTIONAL_BIT)
            found.append(Filtered(batch, not (is_transactional and producer_id in hidden)))
    return found


class CommittedView:
    """A reader of one partition's committed data, in order."""

    def __init__(
        self, world: ClusterWorld, guide: Guide, book: TransactionBook, place: Place, name: str
    ) -> None:
        self._world = world
        self._guide = guide
        self._book = book
        self._place = place
        self._name = name
        self._rng = world.fork_rng(f"committed view {name} {place}")
        self._high = self._stable = -1
        self.position = 0
        self.shown: list[tuple[int, bytes]] = []
        """(offset, value) of what was shown since somebody took it away."""

    async def follow(self) -> None:
        """Read for ever."""
        while not self._world.healed:
            try:
                link, epoch = await self._guide.connect(self._place[1])
                try:
                    while not self._world.healed:
                        await self.fetch(link, epoch)
                        await self._look_at_the_end(link, epoch)
                        await asyncio.sleep(0.2 * self._rng.random())
                finally:
                    link.close()
            except TROUBLE:
                await asyncio.sleep(_PAUSE_S)

    async def _look_at_the_end(self, link: KafkaLink, epoch: int) -> None:
        """Sometimes, ask where committed data ends."""
        if self._rng.random() < 0.2:
            end = await link.offset(*self._place, LATEST, epoch, _SILENCE_S, committed=True)
            self._book.stable(self._book.log(*self._place), self._name, end, end)

    async def read_everything(self) -> None:
        """Read from the earliest offset on, until all that is there is stable and was read.

        Raises Refused, OSError, TimeoutError.
        """
        link, epoch = await self._guide.connect(self._place[1])
        try:
            self.position = await link.offset(*self._place, EARLIEST, epoch, _SILENCE_S)
            self.shown.clear()
            while True:
                end = await link.offset(*self._place, LATEST, epoch, _SILENCE_S)
                stable = await link.offset(*self._place, LATEST, epoch, _SILENCE_S, committed=True)
                log = self._book.log(*self._place)
                if self.position >= end == stable:
                    return
                self._world.doing = (
                    f"{self._name} reads {self._place}: {stable} of {end} stable,"
                    f" open is {log.open_transactions()}"
                )
                if self.position < stable:
                    await self.fetch(link, epoch)
                else:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            link.close()

    async def fetch(self, link: KafkaLink, epoch: int, *, is_nearby: bool = False) -> bool:
        """Fetch once, from the leader or from a broker nearby; return whether anything came.

        Raises Refused, OSError, TimeoutError.
        """
        oracle = self._world.oracle
        partition = oracle.partition(*self._place)
        if not self._guide.knows_epochs:
            epoch = -1
        asked_s = self._world.loop.time()
        got = await link.fetch(
            *self._place,
            self.position,
            epoch,
            max_bytes=self._rng.choice((1, 500, 1 << 16)),
            timeout_s=_SILENCE_S,
            committed=True,
            rack=self._guide.rack,
        )
        log = self._book.log(*self._place)
        if is_nearby:
            oracle.read_nearby(partition, self._name, got)
            self._show(got, asked_s)
            return bool(got.records)
        if got.code == OUT_OF_RANGE:
            oracle.out_of_range(partition, self._name, self.position)
            self.position = await link.offset(*self._place, EARLIEST, epoch, _SILENCE_S)
            return False
        if got.code:
            raise Refused(got.code, "fetch")
        # A broker of its own rack that has led until now knows only what is sealed.
        is_steady = self._guide.knows_epochs and link.host != self._guide.rack
        before = self._high if is_steady else -1
        oracle.watermark(partition, self._name, before, got.high_watermark)
        self._book.stable(log, self._name, got.last_stable, got.high_watermark)
        if is_steady:
            self._check_order(got)
        if got.replica >= 0:
            host = self._world.broker_host(got.replica)
            await visit(self._guide, host, partial(self.fetch, epoch=epoch, is_nearby=True))
        self._show(got, asked_s)
        return bool(got.records)

    def _show(self, got: Fetched, asked_s: float) -> None:
        """Tell the judges what was shown, and go on behind it."""
        oracle, log = self._world.oracle, self._book.log(*self._place)
        for batch, is_shown in filtered(got, self.position):
            if batch.next_offset > got.last_stable:
                oracle.fail("X4", f"{self._name} got {batch.base_offset}, {got.last_stable} stable")
            self._book.read(log, self._name, batch, is_shown=is_shown)
            if is_shown:
                self.shown += [row for row in batch.values() if row[0] >= self.position]
        partition = oracle.partition(*self._place)
        if partition.compacted is None:
            self.position = oracle.consumed(partition, self._name, got.records, self.position)
        else:
            self.position = partition.compacted.read(
                self._name, got.records, self.position, asked_s
            )

    def _check_order(self, got: Fetched) -> None:
        """X4: neither offset goes back for whoever knows the epoch."""
        if got.last_stable < self._stable:
            text = f"{self._name} saw {self._stable} stable, then {got.last_stable}"
            self._world.oracle.fail("X4", f"{self._place}: {text}")
        self._high, self._stable = got.high_watermark, got.last_stable

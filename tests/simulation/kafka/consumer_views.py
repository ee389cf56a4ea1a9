"""How the consumers of whole-cluster schedules read a partition: in order, from wherever they are.

What they are shown goes to the oracle.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.kafka.connection import EARLIEST, OUT_OF_RANGE, Fetched, KafkaLink, Refused
from tests.simulation.kafka.guide import PAUSE_S, SILENCE_S, TOPIC, TROUBLE, Guide, visit

if TYPE_CHECKING:
    from tests.simulation.clusters.oracle import PartitionBook
    from tests.simulation.clusters.world import ClusterWorld


class View:
    """One consumer of one partition, in order, from wherever it is."""

    def __init__(self, world: ClusterWorld, guide: Guide, index: int, name: str) -> None:
        self._world = world
        self._guide = guide
        self._index = index
        self._name = name
        self._rng = world.fork_rng(f"view {name} {index}")
        self._high = -1
        self.position = 0

    async def follow(self) -> None:
        """Read for ever."""
        while not self._world.healed:
            try:
                link, epoch = await self._guide.connect(self._index)
                try:
                    while not self._world.healed:
                        await self._fetch(link, epoch)
                        await self._rest(link, epoch)
                finally:
                    link.close()
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)

    async def _rest(self, link: KafkaLink, epoch: int) -> None:
        """Do something else between two answers. Raises Refused, OSError."""
        del link, epoch
        await asyncio.sleep(0.2 * self._rng.random())

    async def read_to(self, end: int) -> None:
        """Read up to an offset. Raises Refused, OSError."""
        link, epoch = await self._guide.connect(self._index)
        try:
            while self.position < end:
                await self._fetch(link, epoch)
        finally:
            link.close()

    async def _fetch(self, link: KafkaLink, epoch: int, *, is_nearby: bool = False) -> bool:
        """Read once, from the leader or from a broker nearby; return whether anything came. Raises
        Refused, OSError."""
        oracle = self._world.oracle
        book = self._world.partition(self._index)
        max_bytes = self._rng.choice((1, 500, 1 << 16))
        sent_s = self._world.loop.time()
        if not self._guide.knows_epochs:
            epoch = -1
        got: Fetched = await link.fetch(
            TOPIC,
            self._index,
            self.position,
            epoch,
            max_bytes=max_bytes,
            timeout_s=SILENCE_S,
            rack=self._guide.rack,
        )
        if is_nearby:
            oracle.read_nearby(book, self._name, got)
            self._take(book, got.records, sent_s)
            return bool(got.records)
        if got.code == OUT_OF_RANGE:
            oracle.out_of_range(book, self._name, self.position)
            self.position = await link.offset(TOPIC, self._index, EARLIEST, epoch, SILENCE_S)
            return False
        if got.code:
            self._world.calm.refused(link.host, self._index, got.code)
            raise Refused(got.code, "fetch")
        self._world.check_fresh(link.host, self._index, sent_s)
        # A broker of its own rack that has led until now knows only what is sealed.
        is_steady = self._guide.knows_epochs and link.host != self._guide.rack
        before = self._high if is_steady else -1
        self._high = oracle.watermark(book, self._name, before, got.high_watermark)
        if got.replica >= 0:
            host = self._world.broker_host(got.replica)
            await visit(self._guide, host, partial(self._fetch, epoch=epoch, is_nearby=True))
        self._take(book, got.records, sent_s)
        return bool(got.records)

    def _take(self, book: PartitionBook, data: bytes, asked_s: float) -> None:
        """Tell the oracle what was shown, and go on behind it."""
        del asked_s
        self.position = self._world.oracle.consumed(book, self._name, data, self.position)


class KeyedView(View):
    """A consumer of a compacted partition that begins anew again and again."""

    async def _rest(self, link: KafkaLink, epoch: int) -> None:
        options = self._world.plan.compaction
        assert options is not None
        await asyncio.sleep(options.rest_s_max * self._rng.random())
        if self.position >= self._high and self._rng.random() < 0.7:
            first = await link.offset(TOPIC, self._index, EARLIEST, epoch, SILENCE_S)
            from_start = self._rng.random() < 0.6 or self._high <= first
            self.position = first if from_start else self._rng.randrange(first, self._high)
            self._world.oracle.count("readers that began anew")

    def _take(self, book: PartitionBook, data: bytes, asked_s: float) -> None:
        assert book.compacted is not None
        self.position = book.compacted.read(self._name, data, self.position, asked_s)

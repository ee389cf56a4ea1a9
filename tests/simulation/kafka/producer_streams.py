"""What the idempotent producers of whole-cluster schedules send: one stream for each partition.

A stream sends what is not acknowledged again, on a new connection and in the same order, until
all of it is. What it is told goes to the oracle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from client.wire.kafka.batches.records import Record, build_batch
from tests.simulation.kafka.connection import KafkaLink, Refused
from tests.simulation.kafka.guide import PAUSE_S, TOPIC, TROUBLE, Guide
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    import random
    from typing import Any

    from tests.simulation.clusters.compacted_load import CompactionOptions
    from tests.simulation.clusters.world import ClusterWorld

_NOT_LEADER = 6


class Sent(NamedTuple):
    """A batch that is not acknowledged yet."""

    sequence: int
    values: list[bytes]
    data: bytes


class Stream:
    """One idempotent producer's batches to one partition: all of them, once each, in order."""

    def __init__(
        self, world: ClusterWorld, guide: Guide, index: int, producer_id: int, name: str
    ) -> None:
        self._world = world
        self._guide = guide
        self._index = index
        self._producer_id = producer_id
        self._name = name
        self._rng = world.fork_rng(f"stream {name} {index}")
        self._unacked: deque[Sent] = deque()
        self._sequence = 0
        self._trouble = ""
        self.process: Any = None
        self.finished = False
        """Whether everything is acknowledged, with a batch that was sent after healing."""

    def __repr__(self) -> str:
        return f"{self._name} on {self._index}: {len(self._unacked)} unacked, {self._trouble}"

    async def run(self, take: Any) -> None:
        """Send until the world is healed and a last batch has arrived, too."""
        final = False
        while not (final and not self._unacked):
            try:
                link, _ = await self._guide.connect(self._index)
                try:
                    final = await self._send_all(link, take, final)
                finally:
                    link.close()
            except TROUBLE as error:
                self._trouble = repr(error)
                await asyncio.sleep(PAUSE_S * (0.5 + self._rng.random()))
        self.finished = True

    async def _send_all(self, link: KafkaLink, take: Any, final: bool) -> bool:
        """Use one connection for as long as it works; return whether the last batch was sent."""
        plan = self._world.plan
        in_flight = 0
        for sent in self._unacked:
            self._send(link, sent)
            in_flight += 1
        while True:
            while in_flight < plan.in_flight and not final:
                if not take():
                    if not self._world.healed:
                        break
                    final = True
                self._unacked.append(self._next())
                self._send(link, self._unacked[-1])
                in_flight += 1
            if in_flight:
                code, base = await self._world.calm.answered(link, self._index)
                if code == _NOT_LEADER:
                    self._world.calm.check_refused(link.host, self._index)
                self._answered(code, base)
                in_flight -= 1
            elif final:
                return True
            else:
                await asyncio.sleep(0.1)
            if plan.think_s and not self._world.healed:
                await asyncio.sleep(self._rng.expovariate(1 / plan.think_s))

    def _next(self) -> Sent:
        plan = self._world.plan
        count = self._rng.randint(1, plan.batch_records_max)
        pad = b"." * plan.payload_bytes
        values = [
            b"%s:%d:%d" % (self._name.encode(), self._index, number) + pad
            for number in range(self._sequence, self._sequence + count)
        ]
        records = [Record(None, value, SimClock.EPOCH_MS) for value in values]
        if plan.compaction is not None:
            records = keyed(records, plan.compaction, self._world.loop.time(), self._rng)
            values = [record.value or b"" for record in records]
        data = build_batch(
            records,
            producer_id=self._producer_id,  # type: ignore[arg-type]
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        sent = Sent(self._sequence, values, data)
        self._sequence += count
        return sent

    def _send(self, link: KafkaLink, sent: Sent) -> None:
        link.send_produce(TOPIC, self._index, sent.data, self._world.produce_timeout_ms)

    def _answered(self, code: int, base: int) -> None:
        oracle = self._world.oracle
        book = self._world.partition(self._index)
        if code:
            if base >= 0:
                oracle.fail("T15", f"{book.name}: error {code} with offset {base}")
            raise Refused(code, "produce")
        sent = self._unacked.popleft()
        oracle.note("%s acked %d at %d", self._name, sent.sequence, base)
        oracle.acknowledged(book, base, sent.values)


def keyed(
    plain: list[Record], options: CompactionOptions, now_s: float, rng: random.Random
) -> list[Record]:
    """Return records of today with keys, some of them tombstones."""
    now_ms = SimClock.EPOCH_MS + int(now_s * 1000)
    return [
        Record(
            b"k%d" % rng.randrange(options.keys),
            None if rng.random() < options.tombstone_p else record.value,
            now_ms,
        )
        for record in plain
    ]

"""Kafka clients as brokers have to bear them: they do not read, send halves, leave without a word.

What they append is as good as anything else in the log: they have producer ids of their own and
begin with a new one whenever they do not know what became of their last batches.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from client.wire.kafka.batches.records import Record, build_batch
from tests.simulation.kafka.connection import FETCH, KafkaLink, produce_body
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    import random

    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.kafka.guide import Guide

_SILENCE_S = 2.0
_VISITS_MAX = 12
"""So often one of them appends: what they leave behind has to be read at the end."""


class RudeClient:
    """One process that behaves badly until the world is healed."""

    def __init__(
        self, world: ClusterWorld, guide: Guide, rng: random.Random, topic: str, name: str
    ) -> None:
        self._world = world
        self._guide = guide
        self._rng = rng
        self._topic = topic
        self._name = name
        self._visits = 0

    async def misbehave(self) -> None:
        """Make one visit: to a leader, on a connection of its own. Raises Refused, OSError."""
        index = self._rng.randrange(self._world.plan.partitions)
        link, epoch = await self._guide.connect(index)
        # Whatever the leader answers stays in the network, and with the leader.
        link.transport.pause_reading()
        try:
            await self._rng.choice((self._stall, self._send_half, self._vanish))(link, index, epoch)
        finally:
            if self._rng.random() < 0.5:
                link.transport.abort()
            else:
                link.close()

    async def _stall(self, link: KafkaLink, index: int, epoch: int) -> None:
        """Ask for everything many times, and read nothing of it."""
        self._world.oracle.count("clients that stalled")
        for _ in range(self._rng.choice((10, 40))):
            link.send(
                FETCH,
                struct.pack(">iiiibiii", -1, 300, 1, 1 << 16, 0, 0, -1, 1)
                + struct.pack(">h", len(self._topic))
                + self._topic.encode()
                + struct.pack(">iiiqqi", 1, index, epoch, 0, -1, 1 << 16)
                + struct.pack(">ih", 0, 0),
            )
        await asyncio.sleep(self._rng.expovariate(1.0))

    async def _send_half(self, link: KafkaLink, index: int, _epoch: int) -> None:
        """Begin a request, and do not end it."""
        self._world.oracle.count("clients that sent halves")
        batch = build_batch([Record(None, b"half", SimClock.EPOCH_MS)])
        frame = link.frame(0, produce_body(self._topic, index, batch, 1000))
        link.transport.write(frame[: self._rng.randrange(1, len(frame))])
        await asyncio.sleep(self._rng.expovariate(self._rng.choice((1.0, 20.0))))

    async def _vanish(self, link: KafkaLink, index: int, _epoch: int) -> None:
        """Send more than there is room for, and leave."""
        self._visits += 1
        if self._visits > _VISITS_MAX:
            return
        producer = await self._guide.any_broker()
        try:
            producer_id = await producer.init_producer(_SILENCE_S)
        finally:
            producer.close()
        self._world.oracle.count("clients that vanished")
        for number in range(self._rng.choice((3, 8))):
            value = b"%s:%d:%d:%d" % (self._name.encode(), index, producer_id, number)
            record = Record(None, value + b"." * 600, SimClock.EPOCH_MS)
            batch = build_batch(
                [record],
                producer_id=producer_id,  # type: ignore[arg-type]
                producer_epoch=0,
                base_sequence=number,
            )
            timeout_ms = self._world.produce_timeout_ms
            link.send_produce(self._topic, index, batch, timeout_ms)
        await asyncio.sleep(self._rng.expovariate(self._rng.choice((2.0, 50.0))))

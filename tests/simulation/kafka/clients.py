"""The workload of whole-cluster schedules: producers, consumers, an administrator, the judge.

They speak the Kafka protocol as real clients do, and retry what a broker calls retriable or leaves
unanswered. This file says which host runs what; what is sent and read is in `producer_streams.py`
and `consumer_views.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.clusters import offload_load
from tests.simulation.clusters.consumer_load import CONSUMED
from tests.simulation.kafka.connection import EARLIEST, LATEST, KafkaLink, Refused
from tests.simulation.kafka.consumer_views import KeyedView, View
from tests.simulation.kafka.group_member import History, Member
from tests.simulation.kafka.guide import PAUSE_S, SILENCE_S, TOPIC, TROUBLE, Guide
from tests.simulation.kafka.producer_streams import Stream
from tests.simulation.kafka.rude_clients import RudeClient
from tests.simulation.kafka.secured_clients import log_in
from tests.simulation.kafka.share_clients import SHARED

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine
    from typing import Any

    from tests.simulation.clusters.compacted_load import CompactionOptions
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.machine.hosts import Host

OUTPUTS = "out"
"""What chains of transactions write into."""
_EXISTS = 36


class KafkaClients:
    """All Kafka clients of one schedule."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._roles: dict[str, str] = {}
        self._batches_left: dict[tuple[str, int], int] = {}
        self.streams: list[Stream] = []
        self.history = History(world.loop)
        self.members: list[Host] = []
        self.producers: list[Host] = []
        self.topic_exists = asyncio.Event()

    def assign(self, host: Host, role: str) -> None:
        """Decide what a client host runs."""
        self._roles[host.name] = role
        if role == "member":
            self.members.append(host)
        if role == "producer":
            self.producers.append(host)
        for index in range(self._world.plan.partitions):
            self._batches_left[host.name, index] = self._world.plan.batches

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a client host's next process."""
        mains = {
            "admin": self._administer,
            "producer": self._produce,
            "reader": self._read,
            "member": self._consume,
            "rude": self._misbehave,
        }
        return mains[self._roles[host.name]](host)

    def guide(self, host: Host) -> Guide:
        """Return what a client process knows of leaders."""
        rng = self._world.fork_rng(f"guide {host.name} {host.starts}")
        knows_epochs = self._roles.get(host.name) != "reader" or rng.random() < 0.5
        brokers = [broker.name for broker in self._world.brokers]
        rack = rng.choice(["", *brokers]) if self._world.plan.nearby is not None else ""
        check_named = self._world.calm.check_named
        account = self._world.account_of(host)
        return Guide(
            brokers, rng, check_named, knows_epochs=knows_epochs, rack=rack, account=account
        )

    # ---------------------------------------------------------------- the administrator

    async def _administer(self, host: Host) -> None:
        guide = self.guide(host)
        while not self.topic_exists.is_set():
            try:
                link = await guide.any_broker()
                await self._create(link)
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)
        rng = self._world.fork_rng(f"admin {host.starts}")
        while self._world.plan.trims and not self._world.healed:
            await asyncio.sleep(rng.expovariate(2.0))
            try:
                await self._trim(guide, rng)
            except TROUBLE:
                continue
        await self._world.loop.create_future()

    async def _create(self, link: KafkaLink) -> None:
        plan = self._world.plan
        ensemble_size, copies, acks = plan.quorums
        configs = {
            "min.insync.replicas": str(acks),
            "quire.ensemble.size": str(ensemble_size),
            "segment.bytes": str(plan.segment_bytes),
            "compression.type": plan.compression,
        }
        if plan.compaction is not None:
            configs.update(topic_configs(plan.compaction))
        if plan.offload is not None:
            configs.update(offload_load.topic_configs(plan.offload))
        topics = {TOPIC: plan.partitions}
        if plan.transactions is not None:
            topics[OUTPUTS] = plan.partitions
        if plan.consumers is not None:
            topics[CONSUMED] = plan.consumers.partitions
        if plan.shares is not None:
            topics[SHARED] = plan.shares.partitions
        for topic, partitions in topics.items():
            try:
                await link.create_topic(topic, partitions, copies, configs, SILENCE_S)
            except Refused as refused:
                if refused.code != _EXISTS:
                    raise
        self.topic_exists.set()
        link.close()

    async def _trim(self, guide: Guide, rng: random.Random) -> None:
        index = rng.randrange(self._world.plan.partitions)
        book = self._world.partition(index)
        link, _ = await guide.connect(index)
        try:
            end = max(book.values, default=0)
            offset = end if rng.random() < 0.5 else rng.randrange(end + 1)
            book.trim_to = max(book.trim_to, offset)
            await link.delete_records(TOPIC, index, offset, SILENCE_S)
            self._world.oracle.count("trims")
        finally:
            link.close()

    # ---------------------------------------------------------------- producers

    async def _produce(self, host: Host) -> None:
        await self.topic_exists.wait()
        guide = self.guide(host)
        producer_id = await self._new_producer(guide)
        name = f"{host.name}#{host.starts}"
        assert host.process is not None
        for index in range(self._world.plan.partitions):
            stream = Stream(self._world, guide, index, producer_id, name)
            stream.process = host.process
            self.streams.append(stream)
            self._world.loop.create_task(stream.run(self._left(host.name, index)))
        await self._world.loop.create_future()

    def _left(self, host: str, index: int) -> Any:
        """Return a function that takes one batch off what a producer still has to send."""

        def take() -> bool:
            left, plan = self._batches_left[host, index], self._world.plan
            if self._world.is_settling and left < plan.batches:
                return False
            self._batches_left[host, index] = max(0, left - 1)
            return left > 0

        return take

    async def _new_producer(self, guide: Guide) -> int:
        while True:
            try:
                link = await guide.any_broker()
                producer_id = await link.init_producer(SILENCE_S)
                link.close()
            except TROUBLE:
                await asyncio.sleep(PAUSE_S)
            else:
                return producer_id

    # ---------------------------------------------------------------- consumers

    async def _read(self, host: Host) -> None:
        await self.topic_exists.wait()
        guide = self.guide(host)
        for index in range(self._world.plan.partitions):
            view = self._view(guide, index, f"{host.name}#{host.starts}")
            self._world.loop.create_task(view.follow())
        await self._world.loop.create_future()

    def _view(self, guide: Guide, index: int, name: str) -> View:
        kind = View if self._world.plan.compaction is None else KeyedView
        return kind(self._world, guide, index, name)

    async def _consume(self, host: Host) -> None:
        await self.topic_exists.wait()
        self.history.stable.pop(host.name, None)
        brokers = [broker.name for broker in self._world.brokers]
        rng = self._world.fork_rng(f"member {host.name} {host.starts}")
        partitions = self._world.plan.partitions
        member = Member(host.name, brokers, self.history, rng, static=False, partitions=partitions)
        if self._world.secured is not None:
            member.log_in = partial(log_in, user=host.name)
        await member.run()

    async def _misbehave(self, host: Host) -> None:
        await self.topic_exists.wait()
        name = f"{host.name}#{host.starts}"
        client = RudeClient(self._world, self.guide(host), self._world.fork_rng(name), TOPIC, name)
        while not self._world.healed:
            with contextlib.suppress(*TROUBLE):
                await client.misbehave()
            await asyncio.sleep(PAUSE_S)
        await self._world.loop.create_future()

    # ---------------------------------------------------------------- the judge

    async def judge(self, host: Host, done: asyncio.Future[None]) -> None:
        """See every batch answered and every group together, then read everything."""
        world = self._world
        for producer in self.producers:
            world.doing = f"waiting for the streams of {producer.name}"
            while not all(self._finished(producer)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        guide = self.guide(host)
        await world.until_clean()
        for index in range(world.plan.partitions):
            world.doing = f"reading partition {index}"
            await self._read_everything(guide, index)
        if self.members:
            world.doing = "waiting for the group"
            before = dict(self.history.acknowledged)
            while not self._group_goes_on(before):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        if world.plan.transactions is not None:
            await world.transactions.judge(host)
        if world.secured is not None:
            await world.secured.judge(host)
        if world.consumers is not None:
            await world.consumers.judge()
        if world.shares is not None:
            await world.shares.judge()
        await world.judge_operators()
        world.judge_logs()
        if not done.done():
            done.set_result(None)

    def _finished(self, producer: Host) -> list[bool]:
        """Return which streams of a producer's process are done; one False if it has none yet."""
        mine = [stream for stream in self.streams if stream.process is producer.process]
        for stream in mine:
            if not stream.finished:
                self._world.doing = f"waiting for {stream}"
        return [stream.finished for stream in mine] or [False]

    def _group_goes_on(self, before: dict[int, int]) -> bool:
        stable = self.history.stable
        return (
            len(stable) == len(self.members)
            and len(set(stable.values())) == 1
            and all(
                self.history.acknowledged[index] > before[index]
                for index in range(self._world.plan.partitions)
            )
        )

    async def _read_everything(self, guide: Guide, index: int) -> None:
        """Read from the earliest to the latest offset; both must be what the leader says.

        After trouble it goes on where it was: a login may end sooner than the whole log is read.
        """
        view = self._view(guide, index, "judge")
        book = self._world.partition(index)
        end = max(book.acked, default=-1) + 1
        while True:
            try:
                link, epoch = await guide.connect(index)
                try:
                    first = await link.offset(TOPIC, index, EARLIEST, epoch, SILENCE_S)
                    last = await link.offset(TOPIC, index, LATEST, epoch, SILENCE_S)
                finally:
                    link.close()
                view.position = max(view.position, first)
                await view.read_to(last)
            except TROUBLE as error:
                self._world.doing = f"reading partition {index}: {error!r}"
                await asyncio.sleep(PAUSE_S)
            else:
                if last < end:
                    self._world.oracle.fail("T13", f"{book.name}: {last} is latest, not {end}")
                if first > book.trim_to:
                    self._world.oracle.fail("T13", f"{book.name}: earliest is {first}")
                return


def topic_configs(options: CompactionOptions) -> dict[str, str]:
    """Return the configuration of a compacted topic."""
    return {
        "cleanup.policy": "compact,delete" if options.retention_bytes else "compact",
        "retention.bytes": str(options.retention_bytes or -1),
        "min.cleanable.dirty.ratio": options.dirty_ratio_min,
        "min.compaction.lag.ms": str(options.lag_ms_min),
        "delete.retention.ms": str(options.retain_ms),
        "message.timestamp.after.max.ms": str(1 << 50),
    }

"""The workload of whole-cluster schedules: producers, consumers, an administrator, the judge.

They speak the Kafka protocol as real clients do: ask any broker for the leader, follow it, and
retry what a broker calls retriable or leaves unanswered. What they are told goes to the oracle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from client.wire.kafka.batches.record_builder import Record, build_batch
from tests.simulation.group_member import History, Member
from tests.simulation.hosts import SimClock
from tests.simulation.kafka_link import (
    EARLIEST,
    LATEST,
    OUT_OF_RANGE,
    Account,
    Fetched,
    KafkaLink,
    Leader,
    Refused,
)
from tests.simulation.rude_clients import RudeClient
from tests.simulation.secured_clients import log_in

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine
    from typing import Any

    from tests.simulation.cluster_oracle import PartitionBook
    from tests.simulation.cluster_world import ClusterWorld
    from tests.simulation.compacted_load import CompactionOptions
    from tests.simulation.hosts import Host

TOPIC = "t"
OUTPUTS = "out"
"""What chains of transactions write into."""
_NOT_LEADER = 6
_EXISTS = 36
_PAUSE_S = 0.05
_SILENCE_S = 2.0
_VISIT_FETCHES = 5
TROUBLE = (OSError, asyncio.IncompleteReadError, TimeoutError, Refused)
"""What a client meets while brokers fail; it starts over."""


class Sent(NamedTuple):
    """A batch that is not acknowledged yet."""

    sequence: int
    values: list[bytes]
    data: bytes


class Guide:
    """Finds leaders, as the clients of one host know them."""

    def __init__(
        self,
        brokers: list[str],
        rng: random.Random,
        check_named: Callable[[str, str, int], None],
        *,
        knows_epochs: bool,
        topic: str = TOPIC,
        rack: str = "",
        account: Account | None = None,
    ) -> None:
        """`check_named`: told which broker named which leader with which epoch."""
        self._account = account
        self.rack = rack
        """Where the host is, as it tells those it reads from; empty: it does not."""
        self._topic = topic
        self._brokers = brokers
        self._check_named = check_named
        self._rng = rng
        self.knows_epochs = knows_epochs
        """Whether it heeds leader epochs and tells brokers of them; old clients do not."""
        self._epochs: dict[int, int] = {}
        """Highest leader epoch heard of each partition: older news is not believed."""

    def any_host(self) -> str:
        """Return the host of some broker."""
        return self._rng.choice(self._brokers)

    async def any_broker(self) -> KafkaLink:
        """Connect to some broker. Raises OSError, TimeoutError, Refused."""
        return await self.connect_to(self.any_host())

    async def connect_to(self, host: str) -> KafkaLink:
        """Connect to a broker, and log in where one has to. Raises OSError, TimeoutError,
        Refused."""
        return await KafkaLink.connect(host, _SILENCE_S, self._account)

    async def leader(self, index: int) -> Leader | None:
        """Ask some broker who leads a partition. Raises OSError, TimeoutError."""
        link = await self.any_broker()
        try:
            found = (await link.leaders(self._topic, _SILENCE_S)).get(index)
        finally:
            link.close()
        if found is None:
            return None
        self._check_named(link.host, found.host, found.epoch)
        if self.knows_epochs and found.epoch < self._epochs.get(index, -1):
            return None
        self._epochs[index] = found.epoch
        return found

    async def connect(self, index: int) -> tuple[KafkaLink, int]:
        """Connect to a partition's leader; also its epoch. Raises Refused, OSError."""
        leader = await self.leader(index)
        if leader is None:
            raise Refused(5, "no leader")
        return await self.connect_to(leader.host), leader.epoch


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
        check_named = self._world.check_named
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
                await asyncio.sleep(_PAUSE_S)
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
        }
        if plan.compaction is not None:
            configs.update(topic_configs(plan.compaction))
        topics = [TOPIC] if plan.transactions is None else [TOPIC, OUTPUTS]
        for topic in topics:
            try:
                await link.create_topic(topic, plan.partitions, copies, configs, _SILENCE_S)
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
            await link.delete_records(TOPIC, index, offset, _SILENCE_S)
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
                producer_id = await link.init_producer(_SILENCE_S)
                link.close()
            except TROUBLE:
                await asyncio.sleep(_PAUSE_S)
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
            await asyncio.sleep(_PAUSE_S)
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
        """Read from the earliest to the latest offset; both must be what the leader says."""
        view = self._view(guide, index, "judge")
        book = self._world.partition(index)
        end = max(book.acked, default=-1) + 1
        while True:
            try:
                link, epoch = await guide.connect(index)
                try:
                    first = await link.offset(TOPIC, index, EARLIEST, epoch, _SILENCE_S)
                    last = await link.offset(TOPIC, index, LATEST, epoch, _SILENCE_S)
                finally:
                    link.close()
                view.position = first
                await view.read_to(last)
            except TROUBLE as error:
                self._world.doing = f"reading partition {index}: {error!r}"
                await asyncio.sleep(_PAUSE_S)
            else:
                if last < end:
                    self._world.oracle.fail("T13", f"{book.name}: {last} is latest, not {end}")
                if first > book.trim_to:
                    self._world.oracle.fail("T13", f"{book.name}: earliest is {first}")
                return


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
                await asyncio.sleep(_PAUSE_S * (0.5 + self._rng.random()))
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
                code, base = await self._world.answered(link, self._index)
                if code == _NOT_LEADER:
                    self._world.check_refused(link.host, self._index)
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
                await asyncio.sleep(_PAUSE_S)

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
            timeout_s=_SILENCE_S,
            rack=self._guide.rack,
        )
        if is_nearby:
            oracle.read_nearby(book, self._name, got)
            self._take(book, got.records, sent_s)
            return bool(got.records)
        if got.code == OUT_OF_RANGE:
            oracle.out_of_range(book, self._name, self.position)
            self.position = await link.offset(TOPIC, self._index, EARLIEST, epoch, _SILENCE_S)
            return False
        if got.code:
            self._world.refused(link.host, self._index, got.code)
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
            first = await link.offset(TOPIC, self._index, EARLIEST, epoch, _SILENCE_S)
            from_start = self._rng.random() < 0.6 or self._high <= first
            self.position = first if from_start else self._rng.randrange(first, self._high)
            self._world.oracle.count("readers that began anew")

    def _take(self, book: PartitionBook, data: bytes, asked_s: float) -> None:
        assert book.compacted is not None
        self.position = book.compacted.read(self._name, data, self.position, asked_s)


async def visit(
    guide: Guide, host: str, fetch: Callable[[KafkaLink], Coroutine[Any, Any, bool]]
) -> None:
    """Read some times from the broker that a leader named, unless it sends the reader back before;
    or has nothing more, since it leads now."""
    with contextlib.suppress(*TROUBLE):
        link = await guide.connect_to(host)
        try:
            for _ in range(_VISIT_FETCHES):
                if not await fetch(link):
                    return
                await asyncio.sleep(_PAUSE_S)
        finally:
            link.close()


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

"""The transactional workload of whole-cluster schedules: writers, chains, readers, their judge.

A writer puts its number into some partitions of the topic, and an offset, and commits, aborts, or
says nothing any more; its host restarts it under the same name, and now and then a second one of
that name begins while it works. A chain reads committed data and writes what it makes of it into a
second topic, with its offsets, in one transaction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.kafka.clients import OUTPUTS
from tests.simulation.kafka.guide import TOPIC, TROUBLE, Guide
from tests.simulation.kafka.transaction_client import Client, Fenced, MustAbort, TransactionalClient
from tests.simulation.kafka.transaction_link import Offset
from tests.simulation.kafka.transaction_readers import CommittedView
from tests.simulation.transactions.book import TransactionBook

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine
    from typing import Any

    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.machine.hosts import Host
    from tests.simulation.transactions.book import Transaction

_PAUSE_S = 0.05
_OVERDUE_S = (0.5, 2.5)
"""How much longer than its transaction may last a silent client says nothing."""


class TransactionClients:
    """All transactional clients of one schedule."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self.book = TransactionBook(world.oracle)
        self._roles: dict[str, str] = {}
        self._hosts: list[Host] = []
        self.left: dict[str, int] = {}
        """Transactions that each writer's host still begins before healing."""
        self._names: dict[str, int] = {}
        """How many transactional ids each host has left behind, open."""
        self._finished: dict[str, object] = {}
        """Host -> its process that has done all that it had to."""
        self._started: dict[str, int] = {}
        self._clients: dict[str, deque[TransactionalClient]] = {}
        """The latest of each host."""
        self._behind: dict[int, str] = {}
        """Partition -> how far its chain has come."""

    def assign(self, host: Host, role: str) -> None:
        """Decide what a client host runs."""
        assert self._world.plan.transactions is not None
        self._roles[host.name] = role
        self.left[host.name] = self._world.plan.transactions.transactions
        self._hosts.append(host)

    def runs_on(self, host: Host) -> bool:
        """Tell whether a host is one of a transactional client."""
        return host.name in self._roles

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a client host's next process."""
        mains = {"writer": self._write, "chain": self._chain, "committed": self._read}
        return mains[self._roles[host.name]](host)

    def guide(self, host: Host, topic: str) -> Guide:
        """Return what a client process knows of a topic's leaders."""
        rng = self._world.fork_rng(f"guide {host.name} {host.starts} {topic}")
        knows_epochs = self._roles.get(host.name) != "committed" or rng.random() < 0.5
        brokers = [broker.name for broker in self._world.brokers]
        rack = rng.choice(["", *brokers]) if self._world.plan.nearby is not None else ""
        return Guide(
            brokers, rng, lambda *_: None, knows_epochs=knows_epochs, topic=topic, rack=rack
        )

    def new_client(self, host: Host, name: str = "") -> TransactionalClient:
        """Return a client that has not started yet, with the transactional id or the host's."""
        options = self._world.plan.transactions
        assert options is not None
        abandoned = self._names.get(host.name, 0)
        name = name or (f"{host.name}-{abandoned}" if abandoned else host.name)
        number = self._started[name] = self._started.get(name, 0) + 1
        rng = self._world.fork_rng(f"transactions {name} {number}")
        me = Client(name, f"{name}#{number}", rng.choice(options.generations))
        guides = {topic: self.guide(host, topic) for topic in (TOPIC, OUTPUTS)}
        client = TransactionalClient(self._world, me, guides, rng)
        self._clients.setdefault(host.name, deque(maxlen=3)).append(client)
        return client

    def abandon(self, host: Host) -> None:
        """Let the next clients of a host have another transactional id."""
        self._names[host.name] = self._names.get(host.name, 0) + 1

    def finished(self, host: Host) -> None:
        """A host has done all that it had to."""
        self._finished[host.name] = host.process

    def is_finished(self, role: str) -> bool:
        """Tell whether all hosts of a role have done all that they had to."""
        for host in self._hosts:
            if self._roles[host.name] == role and not self._is_done(host):
                clients = ", ".join(map(repr, self._clients.get(host.name, ())))
                self._world.doing = f"waiting for {host.name}: {clients}; {self._behind}"
                return False
        return True

    def _is_done(self, host: Host) -> bool:
        return host.running and self._finished.get(host.name, self) is host.process

    # ---------------------------------------------------------------- mains

    async def _write(self, host: Host) -> None:
        await self._world.work.topic_exists.wait()
        while not self._is_done(host):
            await Writer(self._world, self, host).run()
            await asyncio.sleep(_PAUSE_S)
        await self._world.loop.create_future()

    async def _chain(self, host: Host) -> None:
        await self._world.work.topic_exists.wait()
        for index in range(self._world.plan.partitions):
            self._world.loop.create_task(self._chain_one(host, index))
        while not all(self._chained(index) for index in range(self._world.plan.partitions)):  # noqa: ASYNC110
            await asyncio.sleep(2 * _PAUSE_S)
        self.finished(host)
        await self._world.loop.create_future()

    async def _chain_one(self, host: Host, index: int) -> None:
        while True:
            await Chain(self._world, self, host, index).run()
            await asyncio.sleep(_PAUSE_S)

    def _chained(self, index: int) -> bool:
        """Tell whether all that there will be is behind the chain."""
        if not self._world.healed or not self.is_finished("writer"):
            return False
        streams = self._world.work.streams
        if not all(stream.finished for stream in streams if stream.process.alive):
            return False
        log = self.book.log(TOPIC, index)
        done = self.book.offset((Chain.GROUP, TOPIC, index))
        left = [offset for offset, _ in log.committed if offset >= done]
        self._behind[index] = f"at {done} of {log.end_offset}, open is {log.open_transactions()}"
        return log.first_open is None and not left

    async def _read(self, host: Host) -> None:
        await self._world.work.topic_exists.wait()
        for topic in (TOPIC, OUTPUTS):
            guide = self.guide(host, topic)
            for index in range(self._world.plan.partitions):
                view = CommittedView(
                    self._world, guide, self.book, (topic, index), f"{host.name}#{host.starts}"
                )
                self._world.loop.create_task(view.follow())
        await self._world.loop.create_future()

    # ---------------------------------------------------------------- the judge

    async def judge(self, host: Host) -> None:
        """See everything decided, read it, and hold it against the logs."""
        for role in ("writer", "chain"):
            while not self.is_finished(role):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for topic in (TOPIC, OUTPUTS):
            guide = self.guide(host, topic)
            for index in range(self._world.plan.partitions):
                await self._judge_partition(guide, topic, index)
        self.book.judge()
        for index in range(self._world.plan.partitions):
            if "chain" in self._roles.values():
                self._judge_chain(index)

    async def _judge_partition(self, guide: Guide, topic: str, index: int) -> None:
        view = CommittedView(self._world, guide, self.book, (topic, index), "judge")
        while True:
            try:
                await view.read_everything()
            except TROUBLE as error:
                self._world.doing = f"reading {topic} {index}: {error!r}"
                await asyncio.sleep(_PAUSE_S)
            else:
                break
        log = self.book.log(topic, index)
        first = view.shown[0][0] if view.shown else 0
        wanted = sorted(row for row in log.committed if row[0] >= max(first, log.trim_to))
        shown = [row for row in view.shown if row[0] >= log.trim_to]
        compacted = self._world.oracle.partition(topic, index).compacted
        if compacted is not None:  # Z5: what is left of what was committed
            offsets = {offset for offset, _ in shown}
            wanted = [one for one in wanted if one[0] in offsets or not compacted.may_go(one[0])]
        if shown != wanted:
            self._world.oracle.fail("X1", f"{topic} {index}: read {shown}, committed {wanted}")

    def _judge_chain(self, index: int) -> None:
        """X9: what a chain wrote of a partition is what it had read, each record once."""
        inputs = sorted(self.book.log(TOPIC, index).committed)
        done = self.book.offset((Chain.GROUP, TOPIC, index))
        wanted = [b"%d=%b" % row for row in inputs if row[0] < done]
        outputs = sorted(self.book.log(OUTPUTS, index).committed)
        found = [value.split(b":", 4)[4] for _, value in outputs]
        if found != wanted:
            self._world.oracle.fail("X9", f"partition {index}: {wanted} became {found}")


class Writer:
    """One client that writes transactions into several partitions, from its start to its end."""

    def __init__(self, world: ClusterWorld, clients: TransactionClients, host: Host) -> None:
        assert world.plan.transactions is not None
        self._world = world
        self._clients = clients
        self._host = host
        self._client = clients.new_client(host)
        self._options = world.plan.transactions
        self._rng: random.Random = world.fork_rng(f"writer {self._client.me.who}")
        self._number = 0

    async def run(self, *, is_zombie: bool = False) -> None:
        """Write until the world is healed, then commit once more; or until it is fenced."""
        try:
            await self._client.start()
            while not self._world.healed:
                await self._next()
            if not is_zombie:
                await self._last()
                self._clients.finished(self._host)
        except Fenced:
            return

    async def _next(self) -> None:
        """Make the next transaction, if this host still has to."""
        options, rng = self._options, self._rng
        if options.think_s:
            await asyncio.sleep(rng.expovariate(1 / options.think_s))
        left = self._clients.left
        if left[self._host.name] <= 0:
            await asyncio.sleep(_PAUSE_S)
            return
        left[self._host.name] -= 1
        if rng.random() < options.zombie_p:
            other = Writer(self._world, self._clients, self._host)
            self._world.loop.create_task(other.run(is_zombie=True))
        self._number += 1
        transaction = self._client.begin(self._number)
        try:
            await self._make(transaction)
        except MustAbort:
            await self._client.give_up(transaction)

    async def _last(self) -> None:
        """Commit one in every partition: everything works again."""
        while True:
            self._number += 1
            transaction = self._client.begin(self._number)
            try:
                await self._fill(transaction, [*range(self._world.plan.partitions)])
                await self._client.end(transaction, commit=True)
            except MustAbort:
                await self._client.give_up(transaction)
            else:
                return

    async def _make(self, transaction: Transaction) -> None:
        """Make one as it comes. Raises Fenced, MustAbort."""
        options, rng, client = self._options, self._rng, self._client
        count = self._world.plan.partitions
        indexes = sorted(rng.sample(range(count), rng.randint(1, count)))
        if rng.random() < options.abort_p:
            if rng.random() < 0.5:
                await self._fill(transaction, indexes, wait=False)
                await client.give_up(transaction)
            else:
                await self._fill(transaction, indexes)
                await client.end(transaction, commit=False)
            return
        await self._fill(transaction, indexes)
        if rng.random() < options.silence_p:
            self._world.oracle.count("silent transactions")
            if rng.random() < 0.5:
                self._clients.abandon(self._host)
                raise Fenced("it will never be heard of again")
            await asyncio.sleep(options.timeout_ms / 1000 + rng.uniform(*_OVERDUE_S))
        await client.end(transaction, commit=True)

    async def _fill(
        self, transaction: Transaction, indexes: list[int], *, wait: bool = True
    ) -> None:
        """Send to partitions, side by side, and perhaps an offset. Raises Fenced, MustAbort."""
        client, rng = self._client, self._rng
        await client.add(TOPIC, indexes)
        pad = b"." * self._world.plan.payload_bytes
        sends = []
        for index in indexes:
            values = [
                b"tx:%b:%d:%d:" % (client.me.who.encode(), self._number, number) + pad
                for number in range(rng.randint(1, self._options.records_max))
            ]
            sends.append(client.send(transaction, (TOPIC, index), values, wait=wait))
        if wait and rng.random() < 0.4:
            what = Offset(f"of {client.me.name}", TOPIC, 0, self._number, repr(transaction))
            sends.append(client.commit_offset(transaction, what))
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in sorted(filter(None, outcomes), key=lambda one: isinstance(one, MustAbort)):
            raise outcome


class Chain:
    """One client that makes outputs out of a partition's committed records, each once."""

    GROUP = "chain"

    def __init__(
        self, world: ClusterWorld, clients: TransactionClients, host: Host, index: int
    ) -> None:
        assert world.plan.transactions is not None
        self._world = world
        self._index = index
        self._options = world.plan.transactions
        self._client = clients.new_client(host, f"{host.name}.{index}")
        self._rng: random.Random = world.fork_rng(f"chain {self._client.me.who}")
        self._guide = clients.guide(host, TOPIC)
        self._view = CommittedView(
            world, self._guide, clients.book, (TOPIC, index), self._client.me.who
        )
        self._number = 0

    async def run(self) -> None:
        """Go on until it is fenced."""
        try:
            await self._client.start()
            while True:
                offset = await self._client.fetch_offset(self.GROUP, TOPIC, self._index)
                await self._from(max(0, offset))
        except Fenced:
            return

    async def _from(self, offset: int) -> None:
        """Chain transactions from an offset on, until one is aborted. Raises Fenced."""
        self._view.position = offset
        while True:
            self._view.shown.clear()
            try:
                await self._read()
            except TROUBLE:
                await asyncio.sleep(_PAUSE_S)
                continue
            if not self._view.shown:
                await asyncio.sleep(_PAUSE_S)
                continue
            self._number += 1
            transaction = self._client.begin(self._number)
            commit = self._rng.random() >= self._options.abort_p
            try:
                await self._make(transaction)
                await self._client.end(transaction, commit=commit)
            except MustAbort:
                await self._client.give_up(transaction)
                return
            if not commit:
                return

    async def _read(self) -> None:
        """Read some records. Raises what clients meet."""
        link, epoch = await self._guide.connect(self._index)
        try:
            await self._view.fetch(link, epoch)
        finally:
            link.close()

    async def _make(self, transaction: Transaction) -> None:
        """Write what was read, and how far that goes. Raises Fenced, MustAbort."""
        client = self._client
        who = client.me.who.encode()
        values = [
            b"tx:%b:%d:%d:%d=%b" % (who, self._number, number, offset, value)
            for number, (offset, value) in enumerate(self._view.shown)
        ]
        await client.add(OUTPUTS, [self._index])
        await client.send(transaction, (OUTPUTS, self._index), values)
        what = Offset(self.GROUP, TOPIC, self._index, self._view.position, repr(transaction))
        await client.commit_offset(transaction, what)

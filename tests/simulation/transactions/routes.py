"""How requests of transaction schedules travel: connections with numbers, and routes over them.

A connection has a number that its broker gave it, and what is sent over it arrives in order: at
once, late, after its client has gone on over another one, or with an answer that is lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from broker.errors import BrokerError, OldConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from client.ids import ConnectionId
    from tests.simulation.transactions.actors import Client
    from tests.simulation.transactions.nodes import Node, Place
    from tests.simulation.transactions.world import TransactionWorld

T = TypeVar("T")

_TICK_S = 1e-7


class Connection:
    """One connection of a client to a broker."""

    def __init__(self, world: TransactionWorld, node: Node) -> None:
        self._world = world
        self.node = node
        self._life = node.life
        self._number = node.accept()
        self._arrival_s = 0.0
        self._is_open = True

    def post(
        self,
        work: Callable[[Node, ConnectionId], Awaitable[T]],
        *,
        late_s: float,
        gap_s: float,
        lost: bool,
    ) -> asyncio.Future[T]:
        """Send a request, which arrives so much later than the one before it, at least.

        Return the answer that will come, or never.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(lambda one: one.cancelled() or one.exception())
        delay_s = 0.0002 + 0.001 * self._world.rng.random() + late_s
        self._arrival_s = max(self._arrival_s + _TICK_S + gap_s, loop.time() + delay_s)

        def tell(result: T | BaseException) -> None:
            if answer.done() or lost:
                return
            if isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        async def arrive() -> None:
            self._world.check_limits()
            if self.node.life != self._life or not self._is_open:
                loop.call_later(0.001, tell, ConnectionError("nobody there"))
                return
            result: T | BaseException
            try:
                result = await work(self.node, self._number)
            except OldConnection as error:
                self._world.count("older connections closed")
                self._is_open = False
                result = ConnectionError(str(error))
            except BrokerError as error:
                result = error
            loop.call_later(delay_s - late_s, tell, result)

        loop.call_at(self._arrival_s, self._world.start, arrive)
        return answer


class Route:
    """The way to whoever leads a partition, over one connection at a time."""

    def __init__(self, client: Client, place: Place) -> None:
        self._client = client
        self._place = place
        self._connection: Connection | None = None

    def drop(self) -> None:
        """Go on over another connection, perhaps to another broker."""
        self._connection = None

    def connection(self) -> Connection:
        """Connect if need be: to the leader, or whom this client takes for it."""
        if self._connection is None:
            world, rng = self._client.world, self._client.rng
            found = world.leader(self._place)
            if found is None or (not world.is_healed and rng.random() < world.plan.wrong_p):
                node = rng.choice([*world.nodes.values()])
            else:
                node = found[0]
            self._connection = Connection(world, node)
        return self._connection

    def post(self, works: list[Callable[[Node, ConnectionId], Awaitable[T]]]) -> Any:
        """Send requests, one behind the other; return their answers to come."""
        world, rng, plan = self._client.world, self._client.rng, self._client.world.plan
        if not world.is_healed and rng.random() < plan.late_p:
            world.struck("late request")
            late_s = rng.expovariate(1 / plan.late_s)
            for work in works:
                self.connection().post(work, late_s=late_s, gap_s=0.0, lost=True)
            self.drop()
        if not world.is_healed and rng.random() < plan.restless_p:
            self.drop()
        answers = []
        for at, work in enumerate(works):
            gap_s = rng.expovariate(1 / plan.gap_s) if at and plan.gap_s else 0.0
            lost = not world.is_healed and rng.random() < plan.lost_p
            if lost:
                world.struck("lost answer")
            answers.append(self.connection().post(work, late_s=0.0, gap_s=gap_s, lost=lost))
        return answers

    def abandon(self, works: list[Callable[[Node, ConnectionId], Awaitable[T]]]) -> None:
        """Send requests, perhaps late, and give the connection up before anything is answered."""
        mean_s = self._client.world.plan.blind_late_s
        if mean_s and not self._client.world.is_healed:
            late_s = self._client.rng.expovariate(1 / mean_s)
            for work in works:
                self.connection().post(work, late_s=late_s, gap_s=0.0, lost=True)
        else:
            self.post(works)
        self.drop()

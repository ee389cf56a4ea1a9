"""Finds the leaders of partitions, as the Kafka clients of one host know them.

Clients ask any broker for the leader, follow it, and start over when it does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tests.simulation.kafka.connection import Account, KafkaLink, Leader, Refused

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine
    from typing import Any

TOPIC = "t"
"""What producers write into."""
PAUSE_S = 0.05
SILENCE_S = 2.0
"""How long a client waits for an answer."""
TROUBLE = (OSError, asyncio.IncompleteReadError, TimeoutError, Refused)
"""What a client meets while brokers fail; it starts over."""
_VISIT_FETCHES = 5


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
        return await KafkaLink.connect(host, SILENCE_S, self._account)

    async def leader(self, index: int) -> Leader | None:
        """Ask some broker who leads a partition. Raises OSError, TimeoutError."""
        link = await self.any_broker()
        try:
            found = (await link.leaders(self._topic, SILENCE_S)).get(index)
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
                await asyncio.sleep(PAUSE_S)
        finally:
            link.close()

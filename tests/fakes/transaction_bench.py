"""One transaction coordinator over a fake partition, with its markers and producer ids by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from broker.coordinator.runtime import Phase
from broker.transactions.core.marker_queue import (
    Leader,
    Marker,
    MarkerQueueConfig,
    Outcome,
    Unled,
)
from broker.transactions.core.transaction import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdAndEpoch,
    TransactionConfig,
    TransactionEvent,
    TransactionPartition,
    TransactionState,
    TransactionVersion,
)
from broker.transactions.marker_sender import CoordinatorTerm
from broker.transactions.transactions import Surroundings, TransactionCoordinator
from client.errors import ConnectionLoss
from client.ids import BrokerId, ConnectionId, LeaderEpoch, ProducerId
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import VirtualClock

ID = "tx"
TOPIC_ID = UUID(int=7)
P0, P1, P2 = (TransactionPartition("t", TOPIC_ID, index) for index in range(3))


class FakeLeaders:
    """Partition n is led by broker n + 1, unless told otherwise."""

    def __init__(self) -> None:
        self.known: dict[TransactionPartition, Leader | Unled] = {}

    def leader(self, partition: TransactionPartition) -> Leader | Unled:
        default = Leader(BrokerId(partition.partition + 1), LeaderEpoch(1))
        return self.known.get(partition, default)


class FakeLink:
    """Keeps what is sent. `holds`: brokers whose answers wait for `answer`."""

    def __init__(self) -> None:
        self.sent: list[tuple[CoordinatorTerm, BrokerId, Sequence[Marker]]] = []
        self.holds: set[BrokerId] = set()
        self.broken: set[BrokerId] = set()
        """Brokers that cannot be reached."""
        self.outcomes: dict[TransactionPartition, Outcome] = {}
        self.opened = 0
        self.closed = 0
        self._free = asyncio.Event()

    def open(self, coordinator: CoordinatorTerm) -> FakeSessions:
        self.opened += 1
        return FakeSessions(self, coordinator)

    def free(self) -> None:
        """Answer what is held."""
        self.holds.clear()
        self._free.set()

    async def wait(self, broker: BrokerId) -> None:
        while broker in self.holds:
            await self._free.wait()


class FakeSessions:
    def __init__(self, link: FakeLink, coordinator: CoordinatorTerm) -> None:
        self._link = link
        self._coordinator = coordinator

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        link = self._link
        link.sent.append((self._coordinator, broker, markers))
        await asyncio.sleep(0)
        if broker in link.broken:
            raise ConnectionLoss("nobody there")
        await link.wait(broker)
        return [link.outcomes.get(one.partition, Outcome.WRITTEN) for one in markers]

    def close(self) -> None:
        self._link.closed += 1


class TransactionBench:
    """What survives brokers; `lead` makes the next coordinator."""

    def __init__(self, **config: int) -> None:
        self.log = FakeLog(TRANSACTIONS_TOPIC)
        self.link = FakeLink()
        self.leaders = FakeLeaders()
        self.events: list[TransactionEvent] = []
        self.producer_id_errors: list[Exception] = []
        self._config = TransactionConfig(**config)
        self._last_id = 999
        self.partition: FakePartition
        self.coordinator: TransactionCoordinator

    def lead(
        self, *, manual: bool = False, copy_bytes_min: int = 1 << 30, accepted_before: int = -1
    ) -> TransactionBench:
        """Begin to coordinate, without waiting for the log."""
        self.partition = FakePartition(self.log, manual=manual)
        self.coordinator = TransactionCoordinator(
            self.partition,  # type: ignore[arg-type]
            Surroundings(
                VirtualClock(),
                self._take_id,
                self.leaders,
                self.link,
                self._config,
                MarkerQueueConfig(),
                copy_bytes_min,
                self.events.append,
            ),
            ConnectionId(accepted_before),
        )
        self.coordinator.start()
        return self

    async def active(self, **options: Any) -> TransactionBench:
        """Lead, and wait until requests are served."""
        self.lead(**options)
        while self.coordinator.phase is not Phase.ACTIVE:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.01)
        return self

    def lose(self, surviving: int = 0) -> None:
        """The leadership is over."""
        self.partition.lose(surviving)
        self.coordinator.close()

    async def _take_id(self) -> ProducerId:
        await asyncio.sleep(0)
        if self.producer_id_errors:
            raise self.producer_id_errors.pop(0)
        self._last_id += 1
        return ProducerId(self._last_id)

    # --- requests -----------------------------------------------------------------------------

    async def init(
        self, had: ProducerIdAndEpoch | None = None, *, transactional_id: str = ID,
        timeout_ms: int = 60_000, connection: int | None = None,
    ) -> ProducerIdAndEpoch:  # fmt: skip
        return await self.coordinator.init_producer_id(
            InitProducerId(
                transactional_id,
                timeout_ms,
                *(had or (ProducerId(-1), -1)),
                None if connection is None else ConnectionId(connection),
            )
        )

    async def add(
        self, who: ProducerIdAndEpoch, *partitions: TransactionPartition,
        version: TransactionVersion = TransactionVersion.TV0, connection: int | None = None,
    ) -> None:  # fmt: skip
        await self.coordinator.add_partitions(
            AddPartitions(
                ID,
                who,
                partitions or (P0,),
                version,
                None if connection is None else ConnectionId(connection),
            )
        )

    async def end(
        self, who: ProducerIdAndEpoch, *, is_commit: bool = True,
        version: TransactionVersion = TransactionVersion.TV0, connection: int | None = None,
    ) -> ProducerIdAndEpoch:  # fmt: skip
        return await self.coordinator.end_transaction(
            EndTransaction(
                ID, who, is_commit, version,
                None if connection is None else ConnectionId(connection),
            )
        )  # fmt: skip

    @property
    def state(self) -> TransactionState:
        """As stored."""
        found = self.coordinator.last_view.describe(ID)
        assert found is not None
        return found.state

    async def becomes(self, state: TransactionState) -> None:
        """Wait until the id is in a state."""
        for _ in range(10_000):
            found = self.coordinator.last_view.describe(ID)
            if found is not None and found.state is state:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{ID} never became {state.name}")

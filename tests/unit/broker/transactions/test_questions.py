"""Other brokers' questions about transactions that are coordinated here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker.errors import (
    BrokerError,
    InvalidProducerIdMapping,
    NotCoordinator,
    TransactionAbortable,
)
from broker.faults import Code
from broker.partition.core.held_batches import VerificationRequest
from broker.transactions.core.link_messages import Verdict
from broker.transactions.core.transaction import (
    AddPartitions,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from broker.transactions.verifier import Questions
from client.ids import BrokerId, ProducerId
from tests.fakes.virtual_time import run

ASKER = BrokerId(2)


def question(
    partition: int = 0, transactional_id: str = "tx", *, tv2: bool = False
) -> VerificationRequest:
    return VerificationRequest(transactional_id, ProducerId(9), 4, "t", UUID(int=7), partition, tv2)


class Coordinator:
    """Knows partition 0 of the transaction."""

    epoch = 7

    def __init__(self) -> None:
        self.added: list[AddPartitions] = []
        self.gate: asyncio.Event | None = None

    async def verify(
        self, _: str, producer: ProducerIdAndEpoch, partitions: tuple[TransactionPartition, ...]
    ) -> tuple[BrokerError | None, ...]:
        assert producer == (9, 4)
        return tuple(
            None if one.partition == 0 else TransactionAbortable("no") for one in partitions
        )

    async def add_partitions(self, request: AddPartitions) -> None:
        self.added.append(request)
        if self.gate is not None:
            await self.gate.wait()


class Bench:
    """The coordinators of a broker."""

    def __init__(self) -> None:
        self.one = Coordinator()
        self.refuse: Callable[[str], BrokerError | None] = lambda _: None
        self.questions = Questions(self)  # type: ignore[arg-type]

    def coordinator(self, transactional_id: str) -> Any:
        error = self.refuse(transactional_id)
        if error is not None:
            raise error
        return self.one

    async def check_seen(self, partitions: object) -> None:
        """All topics are there."""

    async def ask(self, *questions: VerificationRequest) -> list[Verdict]:
        return list(await self.questions.receive(ASKER, questions))


def test_each_partition_has_its_verdict() -> None:
    async def scenario() -> None:
        bench = Bench()
        assert await bench.ask(question(3), question(0), question(0)) == [
            Verdict(Code.transaction_abortable, 7), Verdict(0, 7), Verdict(0, 7),
        ]  # fmt: skip
        assert await bench.ask() == []

    run(scenario())


def test_partitions_of_one_transaction_are_added_as_one_change() -> None:
    async def scenario() -> None:
        bench = Bench()
        found = await bench.ask(*(question(index, tv2=True) for index in (2, 0, 1, 0)))
        assert found == [Verdict(0, 7)] * 4
        (added,) = bench.one.added
        assert [one.partition for one in added.partitions] == [0, 1, 2]
        assert (added.version, added.connection) == (TransactionVersion.TV2, None)

    run(scenario())


def test_what_one_coordinator_refuses_concerns_no_other() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.refuse = lambda name: {
            "moved": NotCoordinator("x"), "gone": InvalidProducerIdMapping("x")
        }.get(name)  # fmt: skip
        found = await bench.ask(question(0, "moved"), question(0, "gone"), question(0))
        assert found == [
            Verdict(Code.not_coordinator, -1), Verdict(Code.invalid_producer_id_mapping, -1),
            Verdict(0, 7),
        ]  # fmt: skip

    run(scenario())


def test_what_is_not_decided_in_time_is_busy_and_the_others_are_answered() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.one.gate = asyncio.Event()
        found = await bench.ask(question(0, tv2=True), question(0))
        assert found == [Verdict(Code.concurrent_transactions, -1), Verdict(0, 7)]
        bench.one.gate.set()
        await asyncio.sleep(0)

    run(scenario())

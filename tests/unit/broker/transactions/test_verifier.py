"""Questions to coordinators: gathered, asked again for a moment, and what producers hear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.coordinator.core.routing import TRANSACTIONS_TOPIC, coordinator_partition
from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NotCoordinator,
    PeerUnavailable,
    RequestTimedOut,
    TransactionAbortable,
)
from broker.faults import Code
from broker.partition.core.held_batches import VerificationRequest
from broker.transactions.core.link_messages import Verdict
from broker.transactions.verifier import QUESTIONS_MAX, Verifier, verdict_error
from client.ids import BrokerId, ProducerId
from client.node import background
from tests.fakes.virtual_time import run


def question(transactional_id: str = "tx", partition: int = 0) -> VerificationRequest:
    return VerificationRequest(
        transactional_id, ProducerId(9), 4, "t", UUID(int=7), partition, True
    )


class Bench:
    """Two brokers: the one with the even coordinators, and the one with the odd ones."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {TRANSACTIONS_TOPIC: SimpleNamespace(partition_count=4)}
        self.asked: list[tuple[BrokerId, Sequence[VerificationRequest]]] = []
        self.answer: Callable[[VerificationRequest], Verdict | BrokerError] = lambda _: Verdict(
            0, 7
        )
        self.gate: asyncio.Event | None = None
        self.leaderless = False
        self.verifier = Verifier(self, self)  # type: ignore[arg-type]

    def preferred_leader(self, topic: Any, index: int) -> BrokerId | None:
        return None if self.leaderless else BrokerId(index % 2)

    async def ask(
        self, broker: BrokerId, api: Any, requests: Sequence[VerificationRequest], lane: str
    ) -> Sequence[Verdict]:
        self.asked.append((broker, requests))
        if self.gate is not None:
            await self.gate.wait()
        found = [self.answer(one) for one in requests]
        for one in found:
            if isinstance(one, BrokerError):
                raise one
        return [one for one in found if isinstance(one, Verdict)]


def test_what_is_asked_in_one_turn_goes_in_one_request_per_broker() -> None:
    async def scenario() -> None:
        bench = Bench()
        ids = [f"tx-{number}" for number in range(20)]
        epochs = await asyncio.gather(*(bench.verifier.verify(question(one)) for one in ids))
        assert epochs == [7] * 20
        assert len(bench.asked) == 2
        for broker, requests in bench.asked:
            for one in requests:
                assert coordinator_partition(one.transactional_id, 4) % 2 == broker
        bench.asked.clear()
        many = [question(partition=index) for index in range(QUESTIONS_MAX + 1)]
        await asyncio.gather(*(bench.verifier.verify(one) for one in many))
        assert [len(requests) for _, requests in bench.asked] == [QUESTIONS_MAX, 1]

    run(scenario())


@pytest.mark.parametrize(
    "trouble",
    [
        Verdict(Code.not_coordinator, -1),
        Verdict(Code.coordinator_load_in_progress, -1),
        Verdict(Code.concurrent_transactions, 7),
        Verdict(Code.unknown_server_error, 7),
        PeerUnavailable("down"),
    ],
)
def test_while_nobody_knows_it_is_asked_again(trouble: Verdict | BrokerError) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.answer = lambda _: trouble if len(bench.asked) < 4 else Verdict(0, 8)
        assert await bench.verifier.verify(question()) == 8
        assert len(bench.asked) == 4

    run(scenario())


def test_but_not_for_ever() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        for change in ("busy", "hangs", "no leader", "no topic"):
            bench = Bench()
            expected: type[BrokerError] = CoordinatorNotAvailable
            if change == "busy":
                bench.answer = lambda _: Verdict(Code.concurrent_transactions, 7)
                expected = ConcurrentTransactions
            elif change == "hangs":
                bench.gate = asyncio.Event()
                expected = RequestTimedOut
            elif change == "no leader":
                bench.leaderless = True
            else:
                bench.topics.clear()
            began_s = loop.time()
            with pytest.raises(expected):
                await bench.verifier.verify(question())
            assert loop.time() - began_s <= 1.0

    run(scenario())


def test_a_bug_lets_nobody_wait() -> None:
    told = background.failures["questions"]

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        bench = Bench()
        bench.answer = lambda _: 1 // (len(bench.asked) - 1) and Verdict(0, 8)  # type: ignore
        began_s = asyncio.get_running_loop().time()
        assert await bench.verifier.verify(question()) == 8
        assert asyncio.get_running_loop().time() - began_s < 0.5

    run(scenario())
    assert background.failures["questions"] == told + 1


def test_a_refusal_is_final() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.answer = lambda _: Verdict(Code.transaction_abortable, 7)
        with pytest.raises(TransactionAbortable):
            await bench.verifier.verify(question())
        assert len(bench.asked) == 1

    run(scenario())


def test_an_answer_for_others_is_none() -> None:
    async def scenario() -> None:
        bench = Bench()
        answers = [[Verdict(0, 7), Verdict(0, 7)], [Verdict(0, 8)]]

        async def ask(*_: object) -> Any:
            return answers.pop(0)

        bench.ask = ask  # type: ignore[method-assign]
        assert await bench.verifier.verify(question()) == 8

    run(scenario())


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.producer_fenced, InvalidProducerEpoch),
        (Code.invalid_producer_epoch, InvalidProducerEpoch),
        (Code.invalid_txn_state, InvalidTransactionState),
        (Code.invalid_producer_id_mapping, InvalidProducerIdMapping),
        (Code.transaction_abortable, TransactionAbortable),
        (Code.not_coordinator, NotCoordinator),
        (Code.unknown_server_error, RequestTimedOut),
    ],
)
def test_what_a_producer_hears(code: Code, error: type[BrokerError]) -> None:
    assert type(verdict_error(Verdict(code, 1), question())) is error

"""Transactional batches and markers by hand, and a coordinator that answers as a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.errors import BrokerError
from broker.partition.core.append_queue import Append
from broker.partition.core.held_batches import (
    ProducerTransaction,
    VerificationRequest,
)
from broker.partition.partition import Partition
from client.ids import LeaderEpoch, ProducerId
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import Record, build_batch

CLASSIC = ProducerTransaction("tx", is_tv2=False)
TV2 = ProducerTransaction("tx", is_tv2=True)


class FakeVerifier:
    """Vouches at once, unless it is told otherwise."""

    def __init__(self) -> None:
        self.asked: list[VerificationRequest] = []
        self.answer: Callable[[VerificationRequest], int] = lambda _: 1
        self.gate: asyncio.Event | None = None
        """Answers wait for it."""

    async def verify(self, request: VerificationRequest) -> int:
        self.asked.append(request)
        answer, gate = self.answer, self.gate
        if gate is not None:
            await gate.wait()
        return answer(request)

    def refuse(self, error: BrokerError) -> None:
        def answer(_: VerificationRequest) -> int:
            raise error

        self.answer = answer

    def vouch(self, coordinator_epoch: int = 1) -> None:
        self.answer = lambda _: coordinator_epoch

    def hold(self) -> asyncio.Event:
        """Let questions from now on wait for the event."""
        self.gate = asyncio.Event()
        return self.gate


def transactional(*values: str, pid: int = 1, epoch: int = 0, sequence: int = 0) -> bytes:
    """A batch of a transaction."""
    return build_batch(
        [Record(None, value.encode(), 5) for value in values or ("x",)],
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def send(
    partition: Partition,
    *values: str,
    transaction: ProducerTransaction = CLASSIC,
    **options: int,
) -> Append:
    """Append a batch of a transaction."""
    return partition.append(transactional(*values, **options), transaction=transaction)


def marker(pid: int = 1, epoch: int = 0, *, commit: bool = True, coordinator: int = 1) -> Marker:
    return Marker(ProducerId(pid), epoch, commit, coordinator)


async def end(
    partition: Partition,
    pid: int = 1,
    epoch: int = 0,
    *,
    commit: bool = True,
    coordinator: int = 1,
    is_tv2: bool = False,
    leader_epoch: LeaderEpoch | None = None,
) -> None:
    """End a transaction in the partition."""
    await partition.transactions.write_marker(
        marker(pid, epoch, commit=commit, coordinator=coordinator),
        is_tv2=is_tv2,
        leader_epoch=leader_epoch,
    )

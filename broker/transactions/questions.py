"""Answers other brokers' questions about transactions that are coordinated here.

The partitions of one transaction that a request asks about are added as one change. An answer waits
for the others in its request, but never for long: what a coordinator has not decided by then is
answered as busy, and may still take effect, which is no harm: who asks again finds it done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.errors import BrokerError, ConcurrentTransactions
from broker.faults import code_of
from broker.link.link_services import LinkServices
from broker.partition.core.transactions.verification import VerificationRequest
from broker.transactions.core.link_messages import Verdict
from broker.transactions.core.transaction_types import (
    AddPartitions,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from broker.transactions.link_apis import QUESTIONS
from broker.transactions.transactions import Transactions
from client.errors import QuireError
from client.ids import BrokerId
from client.node import background

ANSWER_S_MAX: Final = 0.5
_UNKNOWN_EPOCH: Final = -1


class _Transaction(NamedTuple):
    """What questions of one request have in common."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    is_tv2: bool


class Questions:
    """What other brokers ask the coordinators of this one."""

    def __init__(self, transactions: Transactions, *, answer_s_max: float = ANSWER_S_MAX) -> None:
        self._transactions = transactions
        self._answer_s_max = answer_s_max

    def serve(self, services: LinkServices) -> None:
        """Take questions from other brokers."""
        services.serve(QUESTIONS, self.receive)

    async def receive(
        self, _sender: BrokerId, requests: Sequence[VerificationRequest]
    ) -> Sequence[Verdict]:
        """Return a verdict for each question, in their order."""
        found: dict[_Transaction, dict[TransactionPartition, None]] = {}
        for one in requests:
            found.setdefault(_transaction(one), {})[_partition(one)] = None
        tasks = {
            transaction: background.begin(
                self._ask(transaction, tuple(sorted(partitions))), "question"
            )
            for transaction, partitions in found.items()
        }
        if tasks:
            await asyncio.wait(tasks.values(), timeout=self._answer_s_max)
        verdicts: dict[tuple[_Transaction, TransactionPartition], Verdict] = {}
        for transaction, task in tasks.items():
            if task.done():
                outcome = task.result()
            else:
                busy = _verdict(ConcurrentTransactions("not decided in time"), _UNKNOWN_EPOCH)
                outcome = dict.fromkeys(found[transaction], busy)
            verdicts.update(((transaction, one), verdict) for one, verdict in outcome.items())
        return [verdicts[_transaction(one), _partition(one)] for one in requests]

    async def _ask(
        self, transaction: _Transaction, partitions: tuple[TransactionPartition, ...]
    ) -> dict[TransactionPartition, Verdict]:
        epoch = _UNKNOWN_EPOCH
        errors: Sequence[BrokerError | None] = (None,) * len(partitions)
        try:
            coordinator = self._transactions.coordinator(transaction.transactional_id)
            epoch = coordinator.epoch
            if transaction.is_tv2:
                await self._transactions.check_seen(partitions)
                await coordinator.add_partitions(
                    AddPartitions(
                        transaction.transactional_id,
                        transaction.producer,
                        partitions,
                        TransactionVersion.TV2,
                    )
                )
            else:
                errors = await coordinator.verify(
                    transaction.transactional_id, transaction.producer, partitions
                )
        except QuireError as error:
            return dict.fromkeys(partitions, _verdict(error, epoch))
        return {one: _verdict(error, epoch) for one, error in zip(partitions, errors, strict=True)}


def _verdict(error: QuireError | None, epoch: int) -> Verdict:
    return Verdict(0 if error is None else code_of(error), epoch)


def _transaction(one: VerificationRequest) -> _Transaction:
    producer = ProducerIdAndEpoch(one.producer_id, one.producer_epoch)
    return _Transaction(one.transactional_id, producer, one.is_tv2)


def _partition(one: VerificationRequest) -> TransactionPartition:
    return TransactionPartition(one.topic, one.topic_id, one.partition)

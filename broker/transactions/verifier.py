"""What brokers ask each other about transactions before they accept a first batch (VERIFY).

`Verifier` asks, for partitions that hold such a batch; it implements `TransactionVerifier`. What is
asked in one turn of the loop of coordinators at one broker goes in one request. A question may be
asked again as often as one likes, so while nobody knows the answer (the coordinator moves, loads,
or is busy) it is, for a moment; a producer that is told to come again waits for longer than that.
Which errors a producer sees of what a coordinator says is `verdict_error`.

`Questions` answers for the coordinators of this broker. The partitions of one transaction that a
request asks about are added as one change. An answer waits for the others in its request, but never
for long: what a coordinator has not decided by then is answered as busy, and may still take effect,
which does no harm: a broker that asks again finds it done.

Source: KIP-890; Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.cluster.core.topology import TopicInfo
from broker.coordinator.core.routing import TRANSACTIONS_TOPIC, coordinator_partition
from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    NotCoordinator,
    PeerError,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
)
from broker.faults import Code, code_of
from broker.link.link_services import LinkServices
from broker.link.links import Links
from broker.partition.core.held_batches import VerificationRequest
from broker.transactions.core.link_messages import QUESTIONS, Verdict
from broker.transactions.core.transaction import (
    AddPartitions,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from broker.transactions.transactions import Transactions
from client.errors import QuireError
from client.ids import BrokerId
from client.node import background

LANE: Final = "questions"
ASK_S_MAX: Final = 1.0
"""How long a question is asked again."""
QUESTIONS_MAX: Final = 1_000
"""In one request."""

_PAUSE_S_MIN: Final = 0.01
_PAUSE_S_MAX: Final = 0.1

_Asked = tuple[VerificationRequest, "asyncio.Future[Verdict]"]

_KNOWN: Final[Mapping[int, Callable[[str], BrokerError]]] = {
    Code.coordinator_load_in_progress: CoordinatorLoading,
    Code.coordinator_not_available: CoordinatorNotAvailable,
    Code.not_coordinator: NotCoordinator,
    Code.concurrent_transactions: ConcurrentTransactions,
    Code.invalid_producer_id_mapping: InvalidProducerIdMapping,
    Code.producer_fenced: ProducerFenced,
    Code.transaction_abortable: TransactionAbortable,
    Code.invalid_request: InvalidRequest,
}

ANSWER_S_MAX: Final = 0.5

_UNKNOWN_EPOCH: Final = -1


class ClusterView(Protocol):
    """The part of the cluster's view that coordinators are found in."""

    topics: Mapping[str, TopicInfo]

    def preferred_leader(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return which live broker should lead a partition."""
        ...


class Verifier:
    """The questions of one broker."""

    def __init__(self, cluster: ClusterView, links: Links, *, ask_s_max: float = ASK_S_MAX) -> None:
        self._cluster = cluster
        self._links = links
        self._ask_s_max = ask_s_max
        self._gathered: dict[BrokerId, list[_Asked]] = {}
        self._is_planned = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def verify(self, request: VerificationRequest) -> int:
        """Return the epoch of the coordinator that vouches for a transaction.

        Raises BrokerError; retriable: nobody knows, or not yet.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._ask_s_max
        pause_s = _PAUSE_S_MIN
        while True:
            error: BrokerError
            try:
                async with asyncio.timeout_at(until_s):
                    verdict = await self._ask(request)
            except TimeoutError:
                raise RequestTimedOut(
                    f"the coordinator of {request.transactional_id!r} has not answered"
                ) from None
            except (PeerError, CoordinatorNotAvailable) as unreached:
                error = unreached
            else:
                if verdict.code == Code.none:
                    return verdict.coordinator_epoch
                error = verdict_error(verdict, request)
                if not error.retriable:
                    raise error
            if loop.time() + pause_s >= until_s:
                raise error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _ask(self, request: VerificationRequest) -> Verdict:
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        broker = self._coordinator(request.transactional_id)
        self._gathered.setdefault(broker, []).append((request, future))
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._send)
        return await future

    def _coordinator(self, transactional_id: str) -> BrokerId:
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("this cluster has coordinated no transaction yet")
        index = coordinator_partition(transactional_id, topic.partition_count)
        broker = self._cluster.preferred_leader(topic, index)
        if broker is None:
            raise CoordinatorNotAvailable("no broker is available to coordinate the transaction")
        return broker

    def _send(self) -> None:
        self._is_planned = False
        gathered, self._gathered = self._gathered, {}
        for broker, asked in gathered.items():
            for begin in range(0, len(asked), QUESTIONS_MAX):
                work = self._exchange(broker, asked[begin : begin + QUESTIONS_MAX])
                task = background.begin(work, f"questions {broker}")
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)

    async def _exchange(self, broker: BrokerId, asked: Sequence[_Asked]) -> None:
        try:
            verdicts = await self._links.ask(
                broker, QUESTIONS, [request for request, _ in asked], LANE
            )
            if len(verdicts) != len(asked):
                raise PeerError(f"broker {broker} has answered {len(verdicts)} questions")
        except QuireError as error:
            unreached = error if isinstance(error, BrokerError) else PeerError(str(error))
            for _, future in asked:
                if not future.done():
                    future.set_exception(unreached)
            return
        except asyncio.CancelledError:
            for _, future in asked:
                future.cancel()
            raise
        except Exception:  # a bug: whoever asked must not wait for ever
            for _, future in asked:
                if not future.done():
                    future.set_exception(PeerError(f"broker {broker} cannot be reached"))
            raise
        for (_, future), verdict in zip(asked, verdicts, strict=True):
            if not future.done():
                future.set_result(verdict)


def verdict_error(verdict: Verdict, request: VerificationRequest) -> BrokerError:
    """Return what a producer has to hear of a coordinator's refusal.

    Old clients know neither PRODUCER_FENCED in a Produce answer (INVALID_PRODUCER_EPOCH says the
    same) nor what Kafka calls busy: before TV2, that is NOT_ENOUGH_REPLICAS, on which all retry;
    whoever serves the request turns retriable errors of coordinators into that.
    """
    text = f"the coordinator of {request.transactional_id!r} says {verdict.code}"
    if verdict.code in (Code.producer_fenced, Code.invalid_producer_epoch):
        return InvalidProducerEpoch(request.producer_id, text)
    if verdict.code == Code.invalid_txn_state:
        return InvalidTransactionState(request.producer_id, text)
    return _KNOWN.get(verdict.code, RequestTimedOut)(text)


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

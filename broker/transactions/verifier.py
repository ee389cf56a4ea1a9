"""Asks the coordinators of transactions for partitions that hold a first batch (VERIFY).

Implements `TransactionVerifier`. What is asked in one turn of the loop of coordinators at one
broker goes in one request. A question may be asked again as often as one likes, so while nobody
knows the answer (the coordinator moves, loads, or is busy) it is, for a moment; a producer that is
told to come again waits for longer than that.

Which errors a producer sees of what a coordinator says is `verdict_error`.

Source: KIP-890; Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

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
from broker.faults import Code
from broker.link.links import Links
from broker.partition.core.transactions.verification import VerificationRequest
from broker.transactions.core.link_messages import Verdict
from broker.transactions.link_apis import QUESTIONS
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

"""The transactions of a led partition: verification by coordinators, and their markers.

`core/transactions` makes the decisions; this is the shell around it, as `partition.py` is around
`core/leader.py`. A batch is held while its coordinator is asked. The answer appends it and its
producer's next ones in one step, or refuses them all.

    VERIFY, GUARD, COORDINATOR-EPOCH    `core/transactions/held_batches.py`
    MARKER-ADDRESS                      a marker that names another leader epoch is refused
    MARKER-ONCE                         `core/transactions/open_transactions.py`
    PROVEN                              `core/transactions/leadership_proofs.py`
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    LeadershipLost,
    NotEnoughReplicas,
    NotLeader,
    ProducerFenced,
    UnknownLeaderEpoch,
)
from broker.partition.core.append_queue import Append
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import Effects, State
from broker.partition.core.transactions.held_appends import HeldAppend, settle
from broker.partition.core.transactions.held_batches import Guard, Released
from broker.partition.core.transactions.leadership_proofs import LeadershipProofs
from broker.partition.core.transactions.open_transactions import MarkerVerdict
from broker.partition.core.transactions.verification import (
    OpenTransactionView,
    ProducerView,
    VerificationRequest,
)
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.log_services import LogServices
from client.errors import QuireError
from client.ids import LeaderEpoch, Offset
from client.node import background
from client.wire.kafka.batches.control_batch import Marker, build_marker

_LOG = logging.getLogger(__name__)

_LONG_MS: Final = 60_000
"""Age at which an open transaction is reported: readers of committed data wait for it."""


class PartitionTransactions:
    """Held batches, markers and open transactions of one led partition."""

    __slots__ = (
        "_append",
        "_leader",
        "_proofs",
        "_reported",
        "_run",
        "_services",
        "_steps",
        "_tasks",
    )

    def __init__(
        self,
        services: LogServices,
        steps: LeaderSteps,
        leader: PartitionLeader,
        append: Callable[..., Append],
        run: Callable[[Effects], None],
    ) -> None:
        """`append` is that of the partition; `run` carries out effects."""
        self._services = services
        self._steps = steps
        self._leader = leader
        self._append = append
        self._run = run
        self._proofs = LeadershipProofs()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Verifications in progress."""
        self._reported: dict[Offset, None] = {}
        """First offsets of open transactions that were reported."""

    @property
    def are_served(self) -> bool:
        """Whether there is a verifier; if not, transactions are refused."""
        return self._services.coordinators.verifier is not None

    # --- held batches -------------------------------------------------------------------

    def on_held(self, append: HeldAppend) -> None:
        """A batch is held: ask its coordinator, unless a verification is in progress already."""
        self._services.ledgers.memory.take(append.size)
        guard = append.guard
        if guard is None:
            return
        request = VerificationRequest(
            append.transaction.transactional_id,
            guard.producer_id,
            guard.producer_epoch,
            self._steps.topic.name,
            self._steps.topic.topic_id,
            self._steps.index,
            append.transaction.is_tv2,
        )
        task = background.begin(self._verify(guard, request), f"verify {self._steps.name}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _verify(self, guard: Guard, request: VerificationRequest) -> None:
        log, verifier = self._leader.log, self._services.coordinators.verifier
        assert verifier is not None, "batches are held only if there is a verifier"
        try:
            epoch = await verifier.verify(request)
        except QuireError as error:
            released = log.held.on_refused(guard, _refusal(error, request))
        except Exception:  # a bug: the producer must not wait forever
            _LOG.exception(
                "transaction.verification_failed topic=%s partition=%d producer=%d",
                request.topic, request.partition, request.producer_id,
            )  # fmt: skip
            refusal = NotEnoughReplicas(f"{self._steps.name}: the verification failed")
            released = log.held.on_refused(guard, refusal)
        else:
            known = log.fold.transactions.coordinator_epoch(guard.producer_id)
            released = log.held.on_verified(guard, epoch, known)
        self._release(released)

    def _release(self, released: Released[HeldAppend]) -> None:
        for item in released.batches:
            self._services.ledgers.memory.give(item.size)
        settle(released, self._leader.log.held, self._accept)

    def _accept(self, held: HeldAppend) -> Append:
        return self._append(
            held.batch,
            from_client=held.from_client,
            are_keys_checked=True,
            transaction=held.transaction._replace(is_verified=True),
        )

    # --- markers ------------------------------------------------------------------------

    async def write_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> None:
        """End a producer's transaction; return when the marker is confirmed, or when there was
        nothing to write and our leadership is proven.

        `is_tv2`: the marker's epoch is the one after the transaction's. `leader_epoch`: of the
        leader that the marker is meant for; None: any leader, for operators.

        Raises FencedLeaderEpoch and UnknownLeaderEpoch (it is meant for another leader), NotLeader,
        TransactionCoordinatorFenced (the log has a newer coordinator): nothing was written then.
        LeadershipLost: the outcome is unknown.
        """
        await _settled(self._begin_marker(marker, is_tv2=is_tv2, leader_epoch=leader_epoch))

    def _begin_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> Append:
        leader = self._leader
        leader.check_open()
        self._check_address(leader_epoch)
        log = leader.log
        self._release(log.held.on_marker(marker.producer_id, marker.producer_epoch, is_tv2=is_tv2))
        known_epoch = log.producers.epoch(marker.producer_id)
        verdict = log.fold.transactions.judge(marker, known_epoch, is_tv2=is_tv2)
        if verdict is not MarkerVerdict.DONE:
            batch = build_marker(marker, self._services.clock.now_ms())
            return self._append(batch, from_client=False)
        proof = self._proofs.ask(log.offsets.log_end, log.queue.sent_count)
        self._prove()
        return proof

    def _check_address(self, leader_epoch: LeaderEpoch | None) -> None:
        ours = self._leader.segments.leader_epoch
        if leader_epoch is None or leader_epoch == ours:
            return
        text = f"{self._steps.name} is at leader epoch {ours}, the marker is for {leader_epoch}"
        raise FencedLeaderEpoch(text) if leader_epoch < ours else UnknownLeaderEpoch(text)

    def on_entry_confirmed(self) -> None:
        """The ledger confirmed its oldest entry."""
        if self._proofs:
            for proof in self._proofs.on_confirmed():
                proof.complete()
            self._prove()

    def _prove(self) -> None:
        """Add an entry if no other one will prove our leadership."""
        log = self._leader.log
        queue = log.queue
        unsent = len(queue) - queue.sent_count
        unsent += log.in_flight_bytes > queue.size_bytes  # batches that are in no entry yet
        if self._leader.state is State.OPEN and self._proofs.needs_entry(queue.sent_count, unsent):
            log.write_snapshot()
            self._run(log.outgoing())

    # --- what is open -------------------------------------------------------------------

    def open_transactions(self) -> Sequence[OpenTransactionView]:
        """Return the open transactions, oldest first."""
        transactions = self._leader.log.fold.transactions
        return [
            OpenTransactionView(
                producer_id,
                known.producer_epoch,
                transactions.coordinator_epoch(producer_id),
                known.first_offset,
                known.started_ms,
            )
            for producer_id, known in transactions
        ]

    def producers(self) -> Sequence[ProducerView]:
        """Return all known producers."""
        log = self._leader.log
        transactions = log.fold.transactions
        first = {producer_id: known.first_offset for producer_id, known in transactions}
        return [
            ProducerView(
                *last,
                transactions.coordinator_epoch(last[0]),
                first.get(last[0], Offset(-1)),
            )
            for last in log.producers.last_batches()
        ]

    def look(self, now_ms: int) -> None:
        """Log each transaction that has been open for long, once."""
        transactions = self._leader.log.fold.transactions
        reported: dict[Offset, None] = {}
        for producer_id, known in transactions:
            if now_ms - known.started_ms < _LONG_MS:
                continue
            reported[known.first_offset] = None
            if known.first_offset not in self._reported:
                _LOG.warning(
                    "partition.transaction_open topic=%s partition=%d producer=%d producer_epoch=%d"
                    " offset=%d seconds=%d",
                    self._steps.topic.name, self._steps.index, producer_id, known.producer_epoch,
                    known.first_offset, (now_ms - known.started_ms) // 1000,
                )  # fmt: skip
        self._reported = reported

    # --- the end ------------------------------------------------------------------------

    def stop(self, error: LeadershipLost) -> None:
        """The leadership has ended: cancel verifications; held batches were not stored."""
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        for held in self._leader.log.held.drain():
            self._services.ledgers.memory.give(held.size)
            held.complete(NotLeader(f"this broker no longer leads {self._steps.name}"))
        for proof in self._proofs.drain():
            proof.complete(error)


async def _settled(append: Append) -> None:
    """Wait until an append is completed. Raises its error."""
    if not append.completed:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        append.on_done(lambda _: None if done.done() else done.set_result(None))
        await done
    if append.error is not None:
        raise append.error


def _refusal(error: QuireError, request: VerificationRequest) -> BrokerError:
    """Return the producer's error for a coordinator's error: retriable unless that is final."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(request.producer_id, str(error))
    if isinstance(error, ConcurrentTransactions) and request.is_tv2:
        return error
    if error.retriable or not isinstance(error, BrokerError):
        return NotEnoughReplicas(
            f"{request.topic}-{request.partition}: the transaction is not verified: {error}"
        )
    return error

"""The transactions of a led partition: verification by coordinators, and their markers.

The rules are in `core`; this is the shell around them, as `partition.py` is around
`core/leader.py`. A batch is held while its coordinator is asked. The answer appends it and its
producer's next ones in one step, or refuses them all.

    VERIFY, GUARD, COORDINATOR-EPOCH    `core/held_batches.py`
    MARKER-ADDRESS                      a marker that names another leader epoch is refused
    MARKER-ONCE                         `core/open_transactions.py`
    PROVEN                              a leader that was replaced says nothing (`LeadershipProofs`)

A leader that was replaced may not know it yet. In its log a transaction may look decided, or look
as if it never existed, while its successor has the data. So the answer that there is nothing to
write is given only after the confirmation of an entry that was sent to the ledger after the request
arrived. An entry that was already in flight may have been stored before the ledger was fenced. If
no such entry is going to be sent anyway, one has to be added. Requests that arrive while it is in
flight share the next one.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
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
from broker.partition.core.append_queue import Append, HeldAppend, settle
from broker.partition.core.held_batches import (
    Guard,
    OpenTransactionView,
    ProducerView,
    Released,
    VerificationRequest,
)
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import Effects, State
from broker.partition.core.open_transactions import MarkerVerdict
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.log_services import LogServices
from client.errors import QuireError
from client.ids import LeaderEpoch, Offset
from client.node import background
from client.wire.kafka.batches.control_batch import Marker, build_marker

_LOG = logging.getLogger(__name__)

_LONG_MS: Final = 60_000
"""Age at which an open transaction is reported: readers of committed data wait for it."""


class LeadershipProofs:
    """The waits of one partition: each is an empty append, completed when leadership is proven."""

    __slots__ = ("_confirmed", "waiting")

    def __init__(self) -> None:
        self._confirmed = 0
        """Number of entries confirmed while there were waits."""
        self.waiting: list[tuple[int, Append]] = []
        """Value of `_confirmed` that proves leadership, and the append that waits for it."""

    def __len__(self) -> int:
        return len(self.waiting)

    def ask(self, log_end: Offset, sent_count: int) -> Append:
        """Add a wait for the proof. `sent_count`: entries that were sent and are not confirmed."""
        proof = Append(log_end, log_end, (), 0)
        self.waiting.append((self._confirmed + sent_count + 1, proof))
        return proof

    def needs_entry(self, sent_count: int, unsent_count: int) -> bool:
        """Whether an entry must be added now: no entry that is in flight, or will be sent anyway,
        ends any of the waits."""
        if not self.waiting:
            return False
        first = self.waiting[0][0]
        return first > self._confirmed + sent_count and not unsent_count

    def on_confirmed(self) -> Sequence[Append]:
        """The oldest entry was confirmed: return the waits that it ends. Must be called for every
        entry while there are waits."""
        self._confirmed += 1
        waiting = self.waiting
        count = bisect_right(waiting, self._confirmed, key=itemgetter(0))
        proven = [proof for _, proof in waiting[:count]]
        del waiting[:count]
        return proven

    def drain(self) -> Sequence[Append]:
        """The leadership has ended: remove and return all waits."""
        waiting = [proof for _, proof in self.waiting]
        self.waiting.clear()
        return waiting


class PartitionTransactions:
    """Held batches, markers and open transactions of one led partition."""

    __slots__ = (
        "_append",
        "_leader",
        "_reported",
        "_run",
        "_services",
        "_steps",
        "_tasks",
        "proofs",
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
        self.proofs = LeadershipProofs()
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
        except (Exception, asyncio.CancelledError) as error:  # the producer must not wait forever
            if isinstance(error, asyncio.CancelledError) and self._leader.state is State.ENDED:
                raise  # by `stop`, which has settled everything
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
            checked=held.checked,
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
        TransactionCoordinatorFenced (the log has a newer coordinator), NotEnoughReplicas (there is
        no ledger): nothing was written then. LeadershipLost: the outcome is unknown.
        """
        await _settled(self._begin_marker(marker, is_tv2=is_tv2, leader_epoch=leader_epoch))

    def _begin_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> Append:
        leader = self._leader
        leader.check_open()
        self._check_address(leader_epoch)
        leader.check_writable()
        log = leader.log
        self._release(log.held.on_marker(marker.producer_id, marker.producer_epoch, is_tv2=is_tv2))
        known_epoch = log.producers.epoch(marker.producer_id)
        verdict = log.fold.transactions.judge(marker, known_epoch, is_tv2=is_tv2)
        if verdict is not MarkerVerdict.DONE:
            batch = build_marker(marker, self._services.clock.now_ms())
            return self._append(batch, from_client=False)
        proof = self.proofs.ask(log.offsets.log_end, log.queue.sent_count)
        self._prove()
        return proof

    def _check_address(self, leader_epoch: LeaderEpoch | None) -> None:
        ours = self._leader.segments.leader_epoch
        if leader_epoch is None or leader_epoch == ours:
            return
        text = f"{self._steps.name} is at leader epoch {ours}, the marker is for {leader_epoch}"
        raise FencedLeaderEpoch(text) if leader_epoch < ours else UnknownLeaderEpoch(text)

    def on_entry_confirmed(self) -> None:
        """The ledger confirmed its oldest entry. Must be called for every entry while `proofs` are
        waited for."""
        for proof in self.proofs.on_confirmed():
            proof.complete()
        self._prove()

    def _prove(self) -> None:
        """Add an entry if no other one will prove our leadership."""
        log = self._leader.log
        queue = log.queue
        unsent = len(queue) - queue.sent_count
        unsent += log.in_flight_bytes > queue.size_bytes  # batches that are in no entry yet
        if self._leader.state is State.OPEN and self.proofs.needs_entry(queue.sent_count, unsent):
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
        for proof in self.proofs.drain():
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

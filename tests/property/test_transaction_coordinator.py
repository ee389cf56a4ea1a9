"""Random clients, a slow log, late markers and fail-overs against the transaction shard.

The log makes appends durable late, refuses some, and keeps a random part of what was in flight when
its coordinator dies. Clients repeat requests, with the epoch they have, with old ones and with ones
they guess. Checked after every step:

- what the shard shows is the fold of the durable log, nothing more and nothing less, but that a
  decision whose markers are all confirmed may count as complete (COMPLETE-LATER);
- the log goes from state to state as the table allows, and no decision is ever changed;
- who is answered finds what it was told in the log (DECIDE-FIRST), markers too;
- Complete* is in the log only after every partition's marker was confirmed;
- a new incarnation gets a (producer id, epoch) that nobody was ever given, and the older ones get
  nothing done any more;
- every request is answered at most once, and what is not answered waits for something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import Append, LogRecord, Now, Reply, Ticket, Token
from broker.errors import BrokerError, CoordinatorNotAvailable, NotCoordinator, Overloaded
from broker.transactions.core.transaction import (
    PREPARED,
    SETTLED,
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    MarkerWritten,
    ProducerIdAndEpoch,
    ShardEffects,
    TransactionConfig,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    TransactionVersion,
    WriteMarkers,
    completed,
    is_allowed,
)
from broker.transactions.core.transaction_records import (
    PROOF,
    TransactionEntry,
    decode,
    transaction_record,
)
from broker.transactions.core.transaction_shard import TransactionShard
from client.ids import ConnectionId, ProducerId

IDS = ("fresh", "worn")
PARTITIONS = [TransactionPartition("t", None, index) for index in range(3)]
CONFIG = TransactionConfig(
    transactional_id_expiration_ms=100_000, expiry_interval_ms=50_000, parked_requests_max=3
)
WORN = TransactionMetadata(
    ProducerId(1), 32_763, 30_000, TransactionState.COMPLETE_COMMIT, updated_ms=10**12
)
"""An id whose epochs are about to end."""

S = TransactionState
RESULTS = {
    S.PREPARE_COMMIT: True,
    S.COMPLETE_COMMIT: True,
    S.PREPARE_ABORT: False,
    S.COMPLETE_ABORT: False,
}

ids = st.sampled_from(IDS)
versions = st.sampled_from((TransactionVersion.TV0, TransactionVersion.TV2))
parts = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3).map(tuple)
epochs_back = st.sampled_from((0, 0, 0, 0, 0, 0, 0, 1, 2, -1))
seldom = st.sampled_from((False, False, False, False, True))
"""What ends a transaction of others, or the coordinator: rare enough for all to reach its end."""


class Asked(NamedTuple):
    """A request that is not answered, and what must hold when it is."""

    name: str
    is_granted: Callable[[TransactionMetadata, object], bool]


class TransactionCoordinatorMachine(RuleBasedStateMachine):
    """Steps of clients, time, markers and the log."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Now(1000.0, 10**12)
        self.log: list[LogRecord] = [transaction_record("worn", WORN)]
        self.durable: dict[str, TransactionMetadata] = {"worn": WORN}
        self.held: list[Append] = []
        self.allocations: list[Ticket] = []
        self.markers: list[WriteMarkers] = []
        self.asked: dict[Token, Asked] = {}
        self.given: set[ProducerIdAndEpoch] = {WORN.producer}
        self.known: dict[str, ProducerIdAndEpoch] = {"worn": WORN.producer}
        self.confirmed: set[MarkerWritten] = set()
        self.decided: dict[tuple[str, int, ProducerIdAndEpoch], bool] = {}
        self.last_token = 0
        self.last_producer_id = 1
        self.last_connection = 0
        self.shard = self.fold()
        self.perform(self.shard.loaded(self.now))

    # --- plumbing -----------------------------------------------------------------------------

    def fold(self) -> TransactionShard:
        shard = TransactionShard(CONFIG, ConnectionOrder(ConnectionId(self.last_connection)))
        for record in self.log:
            shard.replay(record)
        return shard

    def perform(self, effects: ShardEffects) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self.held.append(effect)
            elif isinstance(effect, Reply):
                self.answer(effect.token, effect.result)
            elif isinstance(effect, AllocateProducerId):
                self.allocations.append(effect.ticket)
            elif isinstance(effect, WriteMarkers):
                self.on_markers(effect)
        self.shard.view.check()

    def on_markers(self, markers: WriteMarkers) -> None:
        durable = self.durable[markers.transactional_id]
        assert durable.state in PREPARED
        assert RESULTS[durable.state] is markers.is_commit
        assert durable.producer == markers.producer
        assert durable.partitions == markers.partitions
        self.markers.append(markers)

    def is_durable(self, record: LogRecord) -> None:
        self.log.append(record)
        if record == PROOF:
            return
        entry = decode(*record)
        assert isinstance(entry, TransactionEntry)
        name, value = entry
        before = self.durable.get(name)
        if value is None:
            assert before is not None
            assert is_allowed(before.state, S.EMPTY), "an id expires between transactions"
            del self.durable[name]
            return
        if value == before:  # stored again, which proves that this coordinator is one (PROVEN)
            assert value.state in (S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
            return
        assert is_allowed(None if before is None else before.state, value.state)
        if before is not None:
            if value.producer_id == before.producer_id:
                assert before.epoch <= value.epoch <= before.epoch + 1
            else:
                assert value.producer_id > before.producer_id
                assert value.epoch == 0
        if before is not None and before.state in SETTLED and value.state is S.PREPARE_ABORT:
            assert not value.partitions, "nothing is open: only the epoch may rise"
        if value.state in RESULTS:
            # An abort between two transactions bumps the epoch and keeps the number of the last.
            key = (name, value.number, value.producer)
            assert self.decided.setdefault(key, RESULTS[value.state]) is RESULTS[value.state]
        if before is not None and before.state in PREPARED:
            assert self.markers_of(name, before) <= self.confirmed
        self.durable[name] = value

    def answer(self, token: Token, result: object) -> None:
        asked = self.asked.pop(token)  # KeyError: answered twice
        if isinstance(result, BrokerError):
            return
        true = self.true_of(asked.name)
        assert any(asked.is_granted(one, result) for one in true), (true, result)
        if isinstance(result, ProducerIdAndEpoch):
            self.known[asked.name] = result
            self.given.add(result)

    def true_of(self, name: str) -> list[TransactionMetadata]:
        """Return what is durable, and what follows from that and the markers."""
        durable = self.durable[name]
        found = [durable]
        if durable.state in PREPARED and self.markers_of(name, durable) <= self.confirmed:
            found.append(completed(durable, self.now.ms))
        return found

    def markers_of(self, name: str, value: TransactionMetadata) -> set[MarkerWritten]:
        return {MarkerWritten(name, value.number, value.producer, one) for one in value.partitions}

    def ask(
        self,
        name: str,
        is_granted: Callable[[TransactionMetadata, object], bool],
        start: Callable[[Token, Now], ShardEffects],
    ) -> None:
        self.last_token += 1
        token = Token(self.last_token)
        self.asked[token] = Asked(name, is_granted)
        try:
            self.perform(start(token, self.now))
        except BrokerError as error:
            self.answer(token, error)

    def who(self, name: str, epochs_back: int) -> ProducerIdAndEpoch:
        """Return what a client may believe to be."""
        current = self.known.get(name, ProducerIdAndEpoch(ProducerId(77), 0))
        return current._replace(epoch=max(current.epoch - epochs_back, 0))

    # --- clients ------------------------------------------------------------------------------

    @rule(name=ids, anyway=seldom)
    def init_anew(self, name: str, anyway: bool) -> None:
        if name in self.durable and not anyway:
            return
        request = InitProducerId(name, 30_000)

        def is_granted(durable: TransactionMetadata, result: object) -> bool:
            # Unless the answer of an EndTxn was lost, which nobody has seen, it is all new.
            return durable.producer == result and result not in self.given

        self.ask(
            name,
            is_granted,
            lambda token, now: self.shard.requests.init_producer_id(request, token, now),
        )

    @rule(name=ids, back=epochs_back, anyway=seldom)
    def init_again(self, name: str, back: int, anyway: bool) -> None:
        if not anyway:
            return
        who = self.who(name, back)
        request = InitProducerId(name, 30_000, *who)
        known = name in self.durable

        def is_granted(durable: TransactionMetadata, result: object) -> bool:
            return durable.producer == result and (
                not known
                or result == (who.producer_id, who.epoch + 1)
                or durable.epoch == 0
            )  # fmt: skip

        self.ask(
            name,
            is_granted,
            lambda token, now: self.shard.requests.init_producer_id(request, token, now),
        )

    @rule(name=ids, back=epochs_back, partitions=parts, version=versions)
    def add(
        self,
        name: str,
        back: int,
        partitions: tuple[TransactionPartition, ...],
        version: TransactionVersion,
    ) -> None:
        who = self.who(name, back)
        request = AddPartitions(name, who, partitions, version)

        def is_granted(durable: TransactionMetadata, result: object) -> bool:
            return (
                durable.state is S.ONGOING
                and durable.producer == who
                and {*partitions} <= {*durable.partitions}
            )

        self.ask(
            name,
            is_granted,
            lambda token, now: self.shard.requests.add_partitions(request, token, now),
        )

    @rule(name=ids, back=epochs_back, is_commit=st.booleans(), version=versions)
    def end(self, name: str, back: int, is_commit: bool, version: TransactionVersion) -> None:
        who = self.who(name, back)
        request = EndTransaction(name, who, is_commit, version)

        def is_granted(durable: TransactionMetadata, result: object) -> bool:
            assert isinstance(result, ProducerIdAndEpoch)
            if RESULTS.get(durable.state) is not is_commit:
                return False
            if version is TransactionVersion.TV0:
                return result == who
            if result.producer_id == who.producer_id:
                return result == durable.producer and result.epoch == who.epoch + 1
            return who.epoch == 32_766 and result.epoch == 0

        self.ask(
            name,
            is_granted,
            lambda token, now: self.shard.requests.end_transaction(request, token, now),
        )

    # --- producer ids, markers, time ----------------------------------------------------------

    @precondition(lambda self: self.allocations)
    @rule(is_there=st.sampled_from((True, True, True, False)))
    def allocate(self, is_there: bool) -> None:
        outcome: ProducerId | BrokerError = CoordinatorNotAvailable("no ids")
        if is_there:
            self.last_producer_id += 1
            outcome = ProducerId(self.last_producer_id)
        ticket = self.allocations.pop(0)
        self.perform(self.shard.requests.on_producer_id(ticket, outcome, self.now))

    @precondition(lambda self: self.markers)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        """Confirm a marker of any decision, perhaps once more."""
        markers = data.draw(st.sampled_from(self.markers[-4:]))
        chosen = data.draw(st.lists(st.sampled_from(markers.partitions), min_size=1))
        written = [
            MarkerWritten(markers.transactional_id, markers.number, markers.producer, one)
            for one in chosen
        ]
        self.confirmed.update(written)
        self.perform(self.shard.on_marker_written(written, self.now))

    @rule(seconds=st.sampled_from((0.05, 0.1, 0.2, 3.0, 3.0, 11.0, 40.0, 120.0)))
    def time_passes(self, seconds: float) -> None:
        self.now = Now(self.now.s + seconds, self.now.ms + round(seconds * 1000))
        due_s = self.shard.next_deadline()
        if due_s is not None and due_s <= self.now.s:
            self.perform(self.shard.on_deadline(self.now))

    # --- the log ------------------------------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(count=st.sampled_from((1, 2, 9)))
    def append_done(self, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            append = self.held.pop(0)
            for record in append.records:
                self.is_durable(record)
                self.shard.replay(record)
            self.perform(self.shard.on_stored(append.ticket, self.now))

    @precondition(lambda self: len(self.held) == 1)
    @rule()
    def append_refused(self) -> None:
        ticket = self.held.pop().ticket
        self.perform(self.shard.on_store_failed(ticket, Overloaded("full"), self.now))

    @rule(data=st.data(), anyway=seldom)
    def take_over(self, data: st.DataObject, anyway: bool) -> None:
        """The coordinator dies; some of what was in flight is in the log nevertheless."""
        if not anyway:
            return
        records = [record for append in self.held for record in append.records]
        for record in records[: data.draw(st.integers(0, len(records)))]:
            self.is_durable(record)
        self.held.clear()
        self.allocations.clear()
        self.perform(self.shard.unload(NotCoordinator("taken over")))
        assert not self.asked, "somebody was not told"
        self.shard = self.fold()
        self.perform(self.shard.loaded(self.now))

    # --- what holds ---------------------------------------------------------------------------

    @invariant()
    def memory_is_the_fold_of_the_log(self) -> None:
        folded = self.fold()
        for name in IDS:
            value = self.shard.view.describe(name)
            durable = self.durable.get(name)
            assert (value is None) is (durable is None)
            if value is not None and durable is not None:
                assert any(
                    value._replace(partitions=one.partitions, updated_ms=one.updated_ms) == one
                    for one in self.true_of(name)
                )
                again = folded.view.snapshot(name).records
                assert again == [transaction_record(name, durable)]

    @invariant()
    def decisions_are_on_their_way(self) -> None:
        for name, value in self.durable.items():
            transaction = self.shard._table.get(name)
            assert transaction is not None
            if value.state in PREPARED:
                assert transaction.unmarked or transaction.change or transaction.done

    @invariant()
    def who_is_not_answered_waits_for_something(self) -> None:
        waits = self.held or self.allocations
        parked = any(value.state in PREPARED for value in self.durable.values())
        assert not self.asked or waits or parked


TransactionCoordinatorMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=60, deadline=None
)
TestTransactionCoordinator = TransactionCoordinatorMachine.TestCase

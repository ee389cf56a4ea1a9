"""PROVEN and AHEAD: what a coordinator says only while it is known to be the coordinator."""

from __future__ import annotations

import pytest

from broker.errors import (
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NotCoordinator,
    ProducerFenced,
)
from broker.transactions.core.transaction import TransactionMetadata
from client.ids import ProducerId
from tests.unit.broker.transactions.core.transaction_driver import (
    FIRST,
    NEW,
    P0,
    PID,
    PREPARE_COMMIT,
    TIMEOUT_MS,
    TV2,
    Bench,
    ongoing,
    producer,
)


class TestProven:
    """PROVEN: who says "it is done" or "never again" has to be the coordinator still."""

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_a_retry_is_answered_when_the_log_has_confirmed_something(
        self, is_commit: bool
    ) -> None:
        bench = ongoing()
        bench.end(FIRST, is_commit=is_commit)
        bench.confirm()
        before = bench.stored
        bench.slow = True
        retry = bench.end(FIRST, is_commit=is_commit)
        assert retry not in bench.replies
        bench.finish()
        assert bench.replies[retry] == FIRST
        assert bench.stored == before
        assert not bench.markers[1:]

    def test_a_coordinator_that_was_taken_over_does_not_answer(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        bench.confirm()
        bench.slow = True
        retry = bench.end(FIRST)  # or the end of the next transaction, of which we did not hear
        bench.perform(bench.shard.unload(NotCoordinator("fenced")))
        assert isinstance(bench.replies[retry], NotCoordinator)

    def test_an_epoch_for_each_transaction_needs_no_proof(self) -> None:
        bench = ongoing(TV2)
        bench.end(FIRST, version=TV2)
        bench.confirm()
        bench.slow = True
        retry = bench.end(FIRST, version=TV2)
        assert bench.replies[retry] == producer(NEW, 1)

    def test_a_refusal_that_ends_a_client_is_answered_when_the_log_has_confirmed_something(
        self,
    ) -> None:
        bench = ongoing()
        bench.end(FIRST)
        bench.confirm()
        bench.linger()
        bench.init(transactional_id="other")
        bench.slow = True
        before = bench.stored
        refused = {
            bench.end(FIRST, transactional_id="nobody"): InvalidProducerIdMapping,
            bench.add(FIRST, transactional_id="nobody"): InvalidProducerIdMapping,
            bench.add(producer(NEW + 7, 0)): InvalidProducerIdMapping,
            bench.end(FIRST, is_commit=False): InvalidTransactionState,
            bench.add(producer(NEW + 1, -1), transactional_id="other"): ProducerFenced,
            bench.init(producer(NEW + 7, 0)): ProducerFenced,
        }
        assert not refused.keys() & bench.replies.keys()
        bench.finish(len(refused))
        assert {token: type(bench.replies[token]) for token in refused} == refused
        assert bench.stored == before
        bench.load()
        assert bench.stored == before

    def test_who_was_taken_over_sends_such_a_client_to_its_successor(self) -> None:
        """It would end: the id is new, it has a new producer id, or a new transaction."""
        bench = ongoing()
        bench.end(FIRST)
        bench.confirm()
        bench.slow = True
        asked = (
            bench.end(FIRST, transactional_id="nobody"),
            bench.add(producer(NEW + 7, 0)),
            bench.end(FIRST, is_commit=False),
        )
        bench.perform(bench.shard.unload(NotCoordinator("fenced")))
        assert {type(bench.replies[token]) for token in asked} == {NotCoordinator}

    def test_a_log_that_refuses_the_proof_answers_instead(self) -> None:
        bench = Bench()
        bench.slow = True
        token = bench.end(FIRST)
        bench.refuse(NotCoordinator("fenced"))
        assert isinstance(bench.replies[token], NotCoordinator)

    def test_an_epoch_of_the_next_producer_id_is_ahead_too(self) -> None:
        """AHEAD: whoever has it got it from a coordinator that knows more than this one."""
        bench = Bench()
        value = TransactionMetadata(
            PID, 32_767, TIMEOUT_MS, PREPARE_COMMIT, (P0,), 1, 1,
            next_producer_id=ProducerId(NEW), version=TV2,
        )  # fmt: skip
        bench.store(value)
        bench.load()
        token = bench.end(producer(NEW, 1), version=TV2)
        assert isinstance(bench.replies[token], NotCoordinator)
        assert isinstance(bench.replies[bench.add(producer(NEW, 2))], NotCoordinator)

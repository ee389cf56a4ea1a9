"""Which calls a publisher allows when, and what it knows of epochs and sequence numbers."""

from __future__ import annotations

import pytest

from client.pubsub.core.transaction import (
    SEQUENCES,
    Identity,
    State,
    TopicPartition,
    TransactionState,
    WrongState,
)

AT = TopicPartition("t", 0)


def ready(*, second: bool = False) -> TransactionState:
    state = TransactionState()
    state.initialised(Identity(7, 0), second_generation=second)
    return state


def opened(*, second: bool = False) -> TransactionState:
    state = ready(second=second)
    state.begin()
    state.reaches_brokers()
    return state


def test_nothing_goes_before_a_producer_id() -> None:
    with pytest.raises(WrongState, match="has no producer id yet"):
        TransactionState().begin()


def test_one_transaction_at_a_time() -> None:
    state = opened()
    with pytest.raises(WrongState, match="is in a transaction"):
        state.begin()
    state.end(commit=True)
    state.ended()
    state.begin()


def test_a_transaction_that_no_broker_heard_of_ends_without_one() -> None:
    state = ready()
    state.begin()
    assert not state.end(commit=True)
    state.ended()
    assert state.state is State.READY


def test_a_spoilt_transaction_can_only_be_aborted() -> None:
    state = opened()
    state.spoil()
    with pytest.raises(WrongState, match="can only be aborted"):
        state.end(commit=True)
    assert state.end(commit=False)
    assert state.wants_epoch


def test_an_end_in_doubt_may_be_asked_for_again_and_not_the_other_one() -> None:
    state = opened()
    assert state.end(commit=True)
    assert state.end(commit=True)
    with pytest.raises(WrongState, match="waits for a transaction to end"):
        state.end(commit=False)


def test_sequence_numbers_go_on_with_the_epoch_and_begin_anew_with_the_next() -> None:
    state = opened()
    assert [state.take_sequence(AT, 3), state.take_sequence(AT, 2)] == [0, 3]
    state.end(commit=True)
    state.ended()
    assert state.take_sequence(AT, 1) == 5
    state.ended(Identity(7, 1))
    assert state.take_sequence(AT, 1) == 0


def test_sequence_numbers_wrap() -> None:
    state = opened()
    state.take_sequence(AT, SEQUENCES - 1)
    assert [state.take_sequence(AT, 2), state.take_sequence(AT, 1)] == [SEQUENCES - 1, 1]


def test_each_transaction_tells_the_coordinator_anew() -> None:
    state = opened()
    assert state.enrolled.missing([AT]) == [AT]
    state.enrolled.add([AT])
    assert state.enrolled.missing([AT]) == []
    state.end(commit=True)
    state.ended()
    state.begin()
    assert state.enrolled.missing([AT]) == [AT]


def test_an_abort_without_an_answer_is_still_to_be_done() -> None:
    state = opened()
    assert not state.must_be_aborted
    state.end(commit=False)
    found = [state.must_be_aborted]
    state.ended()
    assert [*found, state.must_be_aborted] == [True, False]


def test_the_dead_do_nothing() -> None:
    state = opened()
    state.die()
    state.spoil()
    for call in (state.begin, state.must_be_open, lambda: state.end(commit=False)):
        with pytest.raises(WrongState, match="cannot go on"):
            call()

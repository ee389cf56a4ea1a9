"""What each error code means for a transaction."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as Code

from client.pubsub.core import verdicts
from client.pubsub.core.verdicts import Verdict, in_words

EVERY = (verdicts.of_coordinator, verdicts.of_produce, verdicts.of_offsets)


@pytest.mark.parametrize(
    "code",
    [
        Code.concurrent_transactions,
        Code.coordinator_load_in_progress,
        Code.not_enough_replicas,
        Code.request_timed_out,
    ],
)
def test_codes_of_an_undecided_moment_are_asked_again(code: Code) -> None:
    assert {judge(code) for judge in EVERY} == {Verdict.RETRY}


def test_who_does_not_coordinate_says_to_look_elsewhere() -> None:
    assert {judge(Code.not_coordinator) for judge in EVERY} == {Verdict.LOOK_UP}


def test_fencing_is_final_where_the_coordinator_says_so() -> None:
    assert {judge(Code.producer_fenced) for judge in EVERY} == {Verdict.FENCED}
    assert verdicts.of_coordinator(Code.invalid_producer_epoch) is Verdict.FENCED
    assert verdicts.of_offsets(Code.invalid_producer_epoch) is Verdict.FENCED


def test_a_partition_s_epoch_may_be_the_marker_of_a_time_out() -> None:
    assert verdicts.of_produce(Code.invalid_producer_epoch) is Verdict.ABORT


def test_what_ends_one_transaction_only() -> None:
    for code in (
        Code.invalid_txn_state,
        Code.out_of_order_sequence_number,
        Code.unknown_producer_id,
        Code.message_too_large,
        Code.unknown_server_error,
    ):
        assert verdicts.of_produce(code) is Verdict.ABORT
    for code in (Code.illegal_generation, Code.unknown_member_id, Code.fenced_instance_id):
        assert verdicts.of_offsets(code) is Verdict.ABORT
    assert {judge(Code.transaction_abortable) for judge in EVERY} == {Verdict.ABORT}


def test_what_ends_the_publisher() -> None:
    for code in (
        Code.transactional_id_authorization_failed,
        Code.invalid_producer_id_mapping,
    ):
        assert {judge(code) for judge in EVERY} == {Verdict.FATAL}
    for number in (Code.invalid_txn_state, Code.invalid_transaction_timeout, 9999):
        assert verdicts.of_coordinator(number) is Verdict.FATAL


def test_an_abort_that_finds_nothing_is_done() -> None:
    assert verdicts.of_first_abort(Code.invalid_txn_state) is Verdict.DONE
    assert verdicts.of_first_abort(Code.producer_fenced) is Verdict.FENCED


def test_a_batch_that_the_partition_has_is_stored() -> None:
    assert verdicts.of_produce(Code.duplicate_sequence_number) is Verdict.DONE


def test_words() -> None:
    assert in_words(90) == "PRODUCER_FENCED"
    assert in_words(9999) == "error code 9999"

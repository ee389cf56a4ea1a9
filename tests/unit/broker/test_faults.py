"""Every error a broker can raise has a Kafka code, and retriable errors get retriable codes."""

from __future__ import annotations

import pytest

from broker import errors, faults
from client.errors import ConnectionLoss, LedgerFenced, LogCorrupt, QuireError, WriteFailed


def family(kind: type[QuireError]) -> list[type[QuireError]]:
    return [kind, *(member for child in kind.__subclasses__() for member in family(child))]


@pytest.mark.parametrize("kind", family(errors.BrokerError))
def test_every_broker_error_is_mapped(kind: type[QuireError]) -> None:
    assert kind in faults.CODES
    code = faults.CODES[kind]
    if kind.retriable:
        # Kafka's clients give up on what is not marked retriable. Inconsistent and group codes
        # are handled by their own rules.
        assert code.retriable or kind in (errors.OffsetNotAvailable,)


def test_errors_from_below_are_mapped_by_family() -> None:
    assert faults.code_of(WriteFailed()) == faults.Code.kafka_storage_error
    assert faults.code_of(LedgerFenced()) == faults.Code.not_leader_or_follower
    assert faults.code_of(ConnectionLoss()) == faults.Code.request_timed_out
    assert faults.CODES[LogCorrupt] == faults.Code.unknown_server_error
    assert not LogCorrupt.retriable
    assert faults.code_of(ZeroDivisionError()) == faults.Code.unknown_server_error


def test_only_our_own_words_reach_clients() -> None:
    assert faults.message_of(errors.InvalidRequest("no topics")) == "no topics"
    assert "secret" not in faults.message_of(ValueError("secret"))

"""Our names and numbers of errors are Kafka's."""

from __future__ import annotations

from kio.schema import errors

from client.wire.kafka.error_codes import ErrorCode


def test_the_codes_are_those_of_the_schema() -> None:
    assert {one.name: one.value for one in ErrorCode} == {
        one.name: errors.ErrorCode[one.name].value for one in ErrorCode
    }

"""Which limit counts for whom, what a filter means, and what makes no sense."""

from __future__ import annotations

import math

import pytest

from broker.errors import InvalidRequest
from broker.security.core.quota_limits import (
    CLIENT_ID,
    IP,
    USER,
    Entity,
    QuotaKey,
    QuotaLimits,
    Wanted,
    check_types,
    check_value,
    matches,
)

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ORDER: list[tuple[Entity, tuple[str | None, str | None]]] = [
    (((CLIENT_ID, "app"), (USER, "anna")), ("anna", "app")),
    (((CLIENT_ID, None), (USER, "anna")), ("anna", "app")),
    (((USER, "anna"),), ("anna", None)),
    (((CLIENT_ID, "app"), (USER, None)), ("anna", "app")),
    (((CLIENT_ID, None), (USER, None)), ("anna", "app")),
    (((USER, None),), ("anna", None)),
    (((CLIENT_ID, "app"),), (None, "app")),
    (((CLIENT_ID, None),), (None, "app")),
]
"""Kafka's order, with who shares each limit."""


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_nearest_entity_counts(first: int) -> None:
    limits = QuotaLimits({entity: {PRODUCE: at + 1.0} for at, (entity, _) in enumerate(ORDER)})
    assert limits.of_client(PRODUCE, "anna", "app") == (1.0, ("anna", "app"))
    rest = QuotaLimits({entity: {PRODUCE: 1.0} for entity, _ in ORDER[first:]})
    assert rest.of_client(PRODUCE, "anna", "app") == (1.0, ORDER[first][1])


def test_others_are_not_limited() -> None:
    limits = QuotaLimits({((USER, "anna"),): {PRODUCE: 5.0}})
    assert limits.of_client(PRODUCE, "bert", "app") is None
    assert limits.of_client(QuotaKey.CONSUMER_BYTE_RATE, "anna", "app") is None
    assert QuotaLimits().keys == frozenset()


def test_an_entity_without_that_limit_is_passed_over() -> None:
    limits = QuotaLimits(
        {((USER, "anna"),): {QuotaKey.CONSUMER_BYTE_RATE: 1.0}, ((USER, None),): {PRODUCE: 7.0}}
    )
    assert limits.of_client(PRODUCE, "anna", "") == (7.0, ("anna", None))


def test_addresses() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    limits = QuotaLimits({((IP, None),): {key: 3.0}, ((IP, "10.0.0.1"),): {key: 9.0}})
    assert limits.of_address(key, "10.0.0.1") == (9.0, ("10.0.0.1", None))
    assert limits.of_address(key, "10.0.0.2") == (3.0, ("10.0.0.2", None))


BOTH: Entity = ((CLIENT_ID, None), (USER, "anna"))


@pytest.mark.parametrize(
    ("wanted", "strict", "found"),
    [
        ([], False, True),
        ([], True, False),
        ([Wanted(USER, False, "anna")], False, True),
        ([Wanted(USER, False, "anna")], True, False),
        ([Wanted(USER, False, "bert")], False, False),
        ([Wanted(USER, False, None)], False, False),
        ([Wanted(USER, True, None)], False, True),
        ([Wanted(USER, True, None), Wanted(CLIENT_ID, False, None)], True, True),
        ([Wanted(IP, True, None)], False, False),
    ],
)
def test_filters(wanted: list[Wanted], strict: bool, found: bool) -> None:
    assert matches(BOTH, wanted, strict=strict) is found


@pytest.mark.parametrize("types", [["group"], [USER, USER], [IP, USER], [""]])
def test_types_that_make_no_sense(types: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        check_types(types)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (USER, "no_such", 1.0),
        (USER, "connection_creation_rate", 1.0),
        (IP, "producer_byte_rate", 1.0),
        (USER, "producer_byte_rate", 0.0),
        (USER, "producer_byte_rate", -1.0),
        (USER, "producer_byte_rate", math.nan),
        (USER, "request_percentage", math.inf),
        (USER, "producer_byte_rate", 1.5),
        (USER, "producer_byte_rate", 1e300),
        (IP, "connection_creation_rate", 0.5),
    ],
)
def test_limits_that_make_no_sense(kind: str, key: str, value: float) -> None:
    with pytest.raises(InvalidRequest):
        check_value(((kind, "x"),), key, value)


def test_limits_that_do() -> None:
    check_value(((USER, "x"),), "request_percentage", 0.5)
    check_value(((CLIENT_ID, None), (USER, "x")), "controller_mutation_rate", 2.5)
    check_value(((IP, None),), "connection_creation_rate", 10)

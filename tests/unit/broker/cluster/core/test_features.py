"""Levels of features: raised when all know more, never lowered, with an epoch that only grows."""

from __future__ import annotations

import pytest

from broker.cluster.core import features
from broker.cluster.core.features import (
    NOTHING,
    TRANSACTION_VERSION,
    FeatureUpdate,
    Finalized,
    UpdateType,
    published,
)
from broker.errors import InvalidUpdateVersion
from client.errors import LogCorrupt
from client.ids import BrokerId


@pytest.fixture(autouse=True)
def _knows_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "KNOWN", {TRANSACTION_VERSION: 2})


def level(number: int) -> dict[str, int]:
    return {TRANSACTION_VERSION: number}


def test_what_all_know_is_finalized() -> None:
    assert NOTHING.raised([]) is None
    assert NOTHING.raised([level(2), {}]) is None
    assert NOTHING.raised([level(2), level(1)]) == Finalized(0, level(1))
    first = NOTHING.raised([level(1), level(1)])
    assert first is not None
    assert first.raised([level(2), level(2)]) == Finalized(1, level(2))


def test_nothing_is_lowered() -> None:
    used = Finalized(4, level(2))
    assert used.raised([level(2), level(1), {}]) is None
    assert used.raised([]) is None


BROKERS = {BrokerId(1): level(2), BrokerId(2): level(2)}
CHOSEN = frozenset((TRANSACTION_VERSION,))
UP, DOWN, LOSSY = UpdateType


def to(number: int, kind: int) -> list[FeatureUpdate]:
    return [FeatureUpdate(TRANSACTION_VERSION, number, kind)]


@pytest.mark.parametrize(
    ("current", "wanted", "kind"),
    [(2, 1, DOWN), (2, 0, DOWN), (2, 1, LOSSY), (0, 1, UP), (1, 2, UP), (2, 2, UP), (2, 2, DOWN)],
)
def test_an_operator_raises_and_lowers_and_that_stays(current: int, wanted: int, kind: int) -> None:
    changed = Finalized(4, level(current)).updated(to(wanted, kind), BROKERS)
    assert changed == Finalized(5, level(wanted), CHOSEN)
    assert changed.raised(BROKERS.values()) is None
    assert changed.updated(to(wanted, UP), BROKERS) is changed
    assert Finalized.decode(changed.encode()) == changed


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (to(1, UP), "requires a downgrade"),
        (to(3, UP), "broker 1 supports levels 0 to 2"),
        (to(-1, DOWN), "must not be negative"),
        (to(1, 0), "unknown upgrade type 0"),
        (to(1, 4), "unknown upgrade type 4"),
        ([FeatureUpdate("share.version", 1, UP)], "does not support"),
        ([*to(1, DOWN), FeatureUpdate("share.version", 1, UP)], "does not support"),
    ],
)
def test_what_an_operator_cannot_do(update: list[FeatureUpdate], why: str) -> None:
    with pytest.raises(InvalidUpdateVersion, match=why):
        Finalized(4, level(2)).updated(update, BROKERS)


def test_a_downgrade_does_not_raise_and_every_broker_counts() -> None:
    with pytest.raises(InvalidUpdateVersion, match="requires an upgrade"):
        Finalized(4, level(1)).updated(to(2, DOWN), BROKERS)
    old = {**BROKERS, BrokerId(3): level(1), BrokerId(4): {}}
    with pytest.raises(InvalidUpdateVersion, match="broker 3 supports levels 0 to 1"):
        Finalized(4, level(1)).updated(to(2, UP), old)


def test_features_of_others_stay_as_they_are() -> None:
    used = Finalized(4, {"group.version": 1})
    assert used.raised([level(2)]) == Finalized(5, {"group.version": 1, **level(2)})


def test_who_knows_less_than_is_used() -> None:
    assert Finalized(4, level(2)).unknown() == []
    assert Finalized(4, {**level(3), "share.version": 1}).unknown() == [
        "transaction.version 3", "share.version 1",
    ]  # fmt: skip


def test_level_0_is_not_worth_a_word() -> None:
    assert published({"b": 1, "a": 2, "c": 0}) == {"a": 2, "b": 1}


def test_the_node_there_and_back() -> None:
    used = Finalized(4, {"group.version": 1, **level(2)})
    assert Finalized.decode(used.encode()) == used


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"version":2,"epoch":1,"levels":{}}',
        b'{"version":1,"epoch":-1,"levels":{}}', b'{"version":1,"epoch":1,"levels":[]}',
        b'{"version":1,"epoch":1,"levels":{"a":-1}}', b'{"version":1,"epoch":1,"levels":{"a":"x"}}',
        b'{"version":1,"epoch":1,"levels":{"a":40000}}',
        b'{"version":1,"epoch":1,"levels":{},"chosen":"a"}',
        b'{"version":1,"epoch":1,"levels":{' + b",".join(b'"%d":1' % n for n in range(101)) + b"}}",
    ],
)  # fmt: skip
def test_damage_is_no_feature(data: bytes) -> None:
    with pytest.raises(LogCorrupt):
        Finalized.decode(data)

"""Levels of features: raised when all know more, never lowered, with an epoch that only grows."""

from __future__ import annotations

import pytest

from broker.cluster.core import features
from broker.cluster.core.features import NOTHING, TRANSACTION_VERSION, Finalized, published
from client.errors import LogCorrupt


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
        b'{"version":1,"epoch":1,"levels":{' + b",".join(b'"%d":1' % n for n in range(101)) + b"}}",
    ],
)  # fmt: skip
def test_damage_is_no_feature(data: bytes) -> None:
    with pytest.raises(LogCorrupt):
        Finalized.decode(data)

"""Choosing bookies at random, with exclusions."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from client.errors import NotEnoughBookies
from client.ids import BookieId
from client.ledger.core.placement import RandomPlacement

NAMES = [BookieId(f"b{i}") for i in range(6)]


def test_an_ensemble_has_distinct_writable_bookies() -> None:
    rng = random.Random(1)
    for _ in range(50):
        ensemble = RandomPlacement().choose_ensemble(4, 2, NAMES, rng)
        assert len(set(ensemble)) == 4
        assert set(ensemble) <= set(NAMES)


def test_every_bookie_is_equally_likely_at_every_place() -> None:
    rng = random.Random(7)
    chosen = Counter(RandomPlacement().choose_ensemble(2, 2, NAMES, rng)[0] for _ in range(6000))
    assert set(chosen) == set(NAMES)
    assert max(chosen.values()) < 1.2 * min(chosen.values())


def test_the_same_seed_chooses_the_same() -> None:
    first = RandomPlacement().choose_ensemble(3, 2, NAMES, random.Random(3))
    assert first == RandomPlacement().choose_ensemble(3, 2, NAMES, random.Random(3))


def test_too_few_bookies() -> None:
    with pytest.raises(NotEnoughBookies):
        RandomPlacement().choose_ensemble(3, 2, NAMES[:2], random.Random(1))


def test_replacements_avoid_the_ensemble_and_the_failed() -> None:
    rng = random.Random(1)
    for _ in range(30):
        chosen = RandomPlacement().choose_replacements(NAMES[:3], [1], 2, NAMES, [NAMES[4]], rng)
        assert set(chosen) == {1}
        assert chosen[1] in (NAMES[3], NAMES[5])


def test_as_many_replacements_as_there_are_candidates() -> None:
    rng = random.Random(1)
    chosen = RandomPlacement().choose_replacements(NAMES[:3], [0, 2], 2, NAMES[:4], [], rng)
    assert chosen == {0: NAMES[3]}
    assert RandomPlacement().choose_replacements(NAMES[:3], [0], 2, NAMES[:3], [], rng) == {}


def test_replacements_are_distinct() -> None:
    rng = random.Random(1)
    for _ in range(30):
        chosen = RandomPlacement().choose_replacements(NAMES[:3], [0, 1], 2, NAMES, [], rng)
        assert len(set(chosen.values())) == 2

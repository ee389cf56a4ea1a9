"""Choosing bookies with fresh failures in mind."""

from __future__ import annotations

import asyncio
import random

import pytest

from client.errors import NotEnoughBookies
from client.ids import BookieId
from client.ledger.bookies.bookie_choice import BookieChoice
from client.ledger.core.bookie_health import BookieHealth, HealthLimits
from client.ledger.core.placement import RackPlacement, RandomPlacement
from tests.fakes.bookies import FakeBookies

B = [BookieId(f"b{i}") for i in range(5)]


def choice_of(bookies: FakeBookies, pause_s: float = 60.0) -> BookieChoice:
    health = BookieHealth(HealthLimits(failed_pause_s=pause_s))
    return BookieChoice(bookies, RandomPlacement(), health, random.Random(1))


async def test_failed_bookies_are_no_replacements_for_a_while() -> None:
    choice = choice_of(FakeBookies(B[:4]))
    assert choice.replacements(B[:3], [0], 2, [B[0]]) == {0: B[3]}
    others = [B[3], B[1], B[2]]
    assert choice.replacements(others, [0], 2, [B[3]]) == {}, "b0 failed just before"


async def test_failures_are_forgotten_after_the_pause() -> None:
    choice = choice_of(FakeBookies(B[:4]), pause_s=0.01)
    choice.replacements(B[:3], [0], 2, [B[0]])
    await asyncio.sleep(0.02)
    assert choice.replacements([B[3], B[1], B[2]], [0], 2, [B[3]]) == {0: B[0]}


async def test_unreachable_bookies_are_no_replacements() -> None:
    bookies = FakeBookies(B[:4])
    bookies["b3"].is_unreachable = True
    assert choice_of(bookies).replacements(B[:3], [0], 2, [B[0]]) == {}


async def test_a_new_ledger_takes_them_only_for_want_of_others() -> None:
    bookies = FakeBookies(B)
    choice = choice_of(bookies)
    choice.replacements(B[:3], [0], 2, [B[0]])
    bookies["b1"].is_unreachable = True
    for _ in range(20):
        assert set(choice.ensemble(3, 2)) == {B[2], B[3], B[4]}
    for _ in range(20):
        chosen = choice.ensemble(4, 2)
        assert {B[2], B[3], B[4]} < set(chosen)
        assert len(chosen) == 4
    with pytest.raises(NotEnoughBookies):
        choice.ensemble(6, 2)


async def test_a_doubtful_bookie_in_another_rack_is_better_than_a_ledger_refused() -> None:
    bookies = FakeBookies(B[:3])
    bookies.racks = {B[0]: "a", B[1]: "a", B[2]: "b"}
    bookies["b2"].is_unreachable = True
    placement = RackPlacement(bookies.rack, enforced=True)
    choice = BookieChoice(bookies, placement, BookieHealth(HealthLimits()), random.Random(1))
    assert B[2] in choice.ensemble(2, 2)

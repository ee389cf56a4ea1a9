"""How long those who share a limit have to wait."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.security.core.quota_limits import FairBucket
from client.ids import ConnectionId

A, B = ConnectionId(1), ConnectionId(2)
WINDOW_S = 10.0


def bucket(rate: float = 100.0) -> FairBucket:
    return FairBucket(rate, WINDOW_S, 0.0)


def used(one: FairBucket, connection: ConnectionId, amount: float, now_s: float) -> float:
    one.use(connection, amount, now_s)
    return one.wait_s(connection, now_s)


def test_nobody_waits_within_what_a_window_allows() -> None:
    one = bucket()
    assert used(one, A, 1_000, 0.0) == 0
    assert used(one, A, 100, 0.0) > 0


def test_a_lone_connection_waits_for_what_it_used() -> None:
    one = bucket()
    used(one, A, 1_000, 0.0)
    assert used(one, A, 500, 0.0) == pytest.approx(5.0, rel=0.6)
    assert not one.is_in_debt(6.0)


def test_who_used_nothing_does_not_wait_for_others() -> None:
    one = bucket()
    used(one, A, 5_000, 0.0)
    assert one.wait_s(B, 0.0) == 0


def test_use_that_is_under_way_adds_up() -> None:
    one = bucket()
    used(one, A, 1_000, 0.0)
    waits = [used(one, A, 100, 0.0) for _ in range(5)]
    assert waits == sorted(waits)
    assert waits[-1] >= 5.0


def test_what_is_taken_has_to_be_there() -> None:
    one = bucket(1.0)
    assert [one.take(1, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert one.take(1, 1.0)


def test_another_rate_counts_from_now_on() -> None:
    one = bucket()
    used(one, A, 2_000, 0.0)
    one.set_rate(1_000_000.0, 0.0)
    assert one.is_in_debt(0.0)
    assert not one.is_in_debt(0.1)
    one.set_rate(1.0, 100.0)
    assert used(one, A, 100, 100.0) > 0, "what was saved up is capped too"


def test_it_is_as_new_once_all_is_repaid_and_everybody_is_silent() -> None:
    one = bucket()
    assert one.is_untouched(0.0)
    used(one, A, 1_500, 0.0)
    assert not one.is_untouched(16.0)
    assert one.is_untouched(60.0)


def crowd(
    sizes: list[float], rate: float, duration_s: float, seed: int
) -> tuple[float, dict[int, float]]:
    """Let connections send one request after another, as fast as they may; return the amounts."""
    rng = random.Random(seed)
    one = FairBucket(rate, WINDOW_S, 0.0)
    ready = [(rng.random(), number) for number in range(len(sizes))]
    heapq.heapify(ready)
    amounts = dict.fromkeys(range(len(sizes)), 0.0)
    while ready[0][0] < duration_s:
        now_s, number = heapq.heappop(ready)
        amounts[number] += sizes[number]
        wait_s = used(one, ConnectionId(number), sizes[number], now_s)
        heapq.heappush(ready, (now_s + wait_s + 0.001, number))
    return sum(amounts.values()), amounts


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.floats(10.0, 2_000.0), min_size=1, max_size=8),
    rate=st.floats(50.0, 5_000.0),
    seed=st.integers(0, 1 << 16),
)
def test_the_rate_holds_whoever_shares_it(sizes: list[float], rate: float, seed: int) -> None:
    duration_s = 200.0
    total, _ = crowd(sizes, rate, duration_s, seed)
    assert total <= rate * (duration_s + WINDOW_S) + 2 * sum(sizes) + max(sizes)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([20.0, 50.0, 100.0]), min_size=2, max_size=6),
    seed=st.integers(0, 1 << 16),
)
def test_what_is_allowed_is_used_and_shared_by_what_is_asked(sizes: list[float], seed: int) -> None:
    """Small requests and large ones get about the same."""
    rate, duration_s = 200.0, 600.0
    total, amounts = crowd(sizes, rate, duration_s, seed)
    assert total >= 0.8 * rate * duration_s
    assert max(amounts.values()) <= 2.5 * min(amounts.values())

"""What is held against a bookie, and for how long."""

from __future__ import annotations

from client.errors import BookieTimeout, LedgerFenced, NoSuchEntry, ReadFailed
from client.ids import BookieId
from client.ledger.core.bookie_health import BookieHealth, HealthLimits, is_bad_read

B0, B1 = BookieId("b0"), BookieId("b1")


def test_a_failed_bookie_is_passed_over_for_a_short_while() -> None:
    health = BookieHealth(HealthLimits(failed_pause_s=10))
    health.on_ledger_failed(B0, 100.0)
    assert health.is_passed_over(B0, 109.9)
    assert not health.is_passed_over(B1, 109.9)
    assert not health.is_passed_over(B0, 110.0)
    assert not health.is_slow(B0, 100.0)


def test_a_slow_bookie_is_read_last_for_a_while() -> None:
    health = BookieHealth(HealthLimits(slow_memory_s=60))
    health.on_slow(B0, 100.0)
    health.on_slow(B0, 130.0)
    assert health.is_slow(B0, 189.0)
    assert not health.is_slow(B0, 190.0)
    assert not health.is_passed_over(B0, 130.0), "it may be chosen for new entries"


def test_quarantine_begins_with_one_error_too_many() -> None:
    """QUARANTINE."""
    health = BookieHealth(
        HealthLimits(quarantine_errors_max=2, quarantine_interval_s=60, quarantine_s=1800)
    )
    error = BookieTimeout("late")
    assert [health.on_error(B0, error, 100.0 + i) for i in range(3)] == [False, False, True]
    assert health.is_passed_over(B0, 102.0 + 1799)
    assert not health.is_passed_over(B0, 102.0 + 1800)


def test_quarantine_counts_per_interval_and_bookie() -> None:
    health = BookieHealth(HealthLimits(quarantine_errors_max=2, quarantine_interval_s=60))
    error = BookieTimeout("late")
    told = [health.on_error(b, error, now) for now in (0.0, 10.0, 60.0, 70.0) for b in (B0, B1)]
    assert not any(told)


def test_answers_are_no_errors() -> None:
    health = BookieHealth(HealthLimits(quarantine_errors_max=1))
    for error in (NoSuchEntry("x"), LedgerFenced("y")) * 5:
        assert not health.on_error(B0, error, 0.0)
    assert not is_bad_read(NoSuchEntry("x"))
    assert is_bad_read(ReadFailed("io"))


def test_without_a_limit_there_is_no_quarantine() -> None:
    health = BookieHealth(HealthLimits())
    assert not any(health.on_error(B0, BookieTimeout("late"), 0.0) for _ in range(1000))
    assert not health.is_passed_over(B0, 0.0)


def test_few_bookies_lose_places_for_being_slow_at_a_time() -> None:
    """CHANGE-SLOW: all writers may leave one bookie; they do not flee from one to the next."""
    health = BookieHealth(HealthLimits(slow_memory_s=60.0, slow_bookies_max=1))
    assert not health.is_passed_over(B0, 5.0)
    assert health.may_lose_places(B0, 5.0)
    assert health.is_passed_over(B0, 5.0)
    assert not health.may_lose_places(B1, 30.0)
    assert not health.is_passed_over(B1, 30.0)
    assert health.may_lose_places(B0, 60.0), "another writer of it; its time begins anew"
    assert not health.may_lose_places(B1, 119.0)
    assert health.may_lose_places(B1, 120.0)
    assert not health.is_passed_over(B0, 120.0)
    nobody = BookieHealth(HealthLimits(slow_bookies_max=0))
    assert not nobody.may_lose_places(B0, 5.0)

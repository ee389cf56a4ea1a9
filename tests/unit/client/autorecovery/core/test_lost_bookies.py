"""When lost bookies are acted on: at once, after their delay, or not at all."""

from __future__ import annotations

from client.autorecovery.core.lost_bookies import LostBookies
from client.ids import BookieId

A, B = BookieId("a:1"), BookieId("b:1")


def test_without_a_delay_a_lost_bookie_is_acted_on_at_once_and_once() -> None:
    lost = LostBookies()
    assert lost.look([A], 0.0, 5.0) == (A,)
    assert lost.look([A], 0.0, 5.0) == (A,)  # not marked yet: the task failed
    lost.on_marked([A])
    assert lost.look([A], 0.0, 6.0) == ()


def test_one_lost_bookie_gets_its_delay() -> None:
    lost = LostBookies()
    assert lost.look([A], 60.0, 5.0) == ()
    assert lost.due_s == 65.0
    assert lost.look([A], 60.0, 64.0) == ()  # whatever made us look does not end the wait
    assert lost.look([A], 60.0, 65.0) == (A,)


def test_a_bookie_that_returns_was_never_lost() -> None:
    lost = LostBookies()
    lost.look([A], 60.0, 5.0)
    assert lost.look([], 60.0, 30.0) == ()
    assert lost.due_s is None
    assert lost.look([A], 60.0, 50.0) == ()
    assert lost.due_s == 110.0


def test_a_second_lost_bookie_ends_the_wait() -> None:
    lost = LostBookies()
    lost.look([A], 60.0, 5.0)
    assert lost.look([A, B], 60.0, 6.0) == (A, B)


def test_a_bookie_lost_after_others_were_handled_waits_alone() -> None:
    lost = LostBookies()
    lost.on_marked([A])
    assert lost.look([A, B], 60.0, 5.0) == ()
    assert lost.look([A, B], 60.0, 65.0) == (A, B)


def test_a_bookie_lost_for_a_second_time_is_acted_on_again() -> None:
    lost = LostBookies()
    lost.on_marked([A])
    assert lost.look([], 0.0, 5.0) == ()
    assert lost.look([A], 0.0, 6.0) == (A,)


def test_another_delay_counts_from_the_loss() -> None:
    lost = LostBookies()
    lost.look([A], 60.0, 5.0)
    assert lost.look([A], 10.0, 15.0) == (A,)


def test_bookies_that_were_not_seen_yet_may_come_within_the_grace_time() -> None:
    lost = LostBookies(start_grace_s=30.0)
    assert not lost.may_still_come(100.0)
    assert lost.look([A, B], 0.0, 100.0) == ()
    assert lost.look([A], 0.0, 110.0) == ()
    assert lost.look([A], 0.0, 129.0) == ()
    assert lost.may_still_come(129.0)
    assert lost.look([A], 0.0, 130.0) == (A,)
    assert not lost.may_still_come(130.0)


def test_a_bookie_that_was_seen_is_lost_within_the_grace_time_too() -> None:
    lost = LostBookies(start_grace_s=30.0)
    assert lost.look([A, B], 0.0, 100.0) == ()
    assert lost.look([B], 0.0, 101.0) == ()
    assert lost.may_still_come(101.0)
    assert lost.look([A, B], 0.0, 102.0) == (A,)


def test_the_grace_time_and_the_delay_of_one_lost_bookie_begin_together() -> None:
    lost = LostBookies(start_grace_s=30.0)
    assert lost.look([A], 60.0, 100.0) == ()
    assert lost.look([A], 60.0, 130.0) == ()
    assert lost.look([A], 60.0, 160.0) == (A,)


def test_a_bookie_that_came_late_and_is_lost_after_the_grace_time_gets_its_delay() -> None:
    lost = LostBookies(start_grace_s=30.0)
    assert lost.look([A], 60.0, 100.0) == ()
    assert lost.look([], 60.0, 140.0) == ()
    assert lost.look([A], 60.0, 200.0) == ()
    assert lost.look([A], 60.0, 260.0) == (A,)

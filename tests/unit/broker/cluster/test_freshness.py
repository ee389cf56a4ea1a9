"""How old what a broker knows of users and entries may be, and what it is as of."""

from __future__ import annotations

from broker.cluster.directory_view import Freshness


def test_it_counts_for_so_long_from_the_last_question_that_was_answered() -> None:
    made = Freshness(10.0)
    assert not made.is_fresh(0.0), "nothing was answered yet"
    made.answered(100.0)
    assert made.is_fresh(109.9)
    assert not made.is_fresh(110.0)
    made.answered(90.0)
    assert made.is_fresh(109.9), "an older answer takes nothing away"
    made.answered(105.0)
    assert made.is_fresh(114.9)


def test_without_a_limit_it_always_counts() -> None:
    assert Freshness().is_fresh(1e9)


def test_a_change_that_was_not_read_holds_the_time_where_it_was_before() -> None:
    made = Freshness(10.0)
    made.answered(100.0)
    made.told("/users/anna")
    made.answered(108.0)
    assert not made.is_fresh(110.0), "the change was made after 100, and nobody knows what it is"
    made.read("/users/anna")
    made.answered(109.0)
    assert made.is_fresh(118.9)


def test_later_changes_do_not_hide_for_how_long_an_earlier_one_has_waited() -> None:
    made = Freshness(10.0)
    made.answered(100.0)
    made.told("/users/anna")
    made.answered(101.0)
    made.told("/users/bert")
    made.told("/users/anna")
    made.answered(109.0)
    assert not made.is_fresh(110.0)
    made.read("/users/anna")
    made.answered(109.5)
    assert made.is_fresh(110.9)
    assert not made.is_fresh(111.0), "bert's has waited since 101"


def test_what_a_list_shows_is_as_old_as_the_news_of_the_list() -> None:
    made = Freshness(10.0)
    made.answered(100.0)
    made.told("/users")
    made.answered(105.0)
    made.found("/users/new", "/users")
    made.read("/users")
    made.answered(108.0)
    assert not made.is_fresh(110.0)
    made.read("/users/new")
    made.answered(109.0)
    assert made.is_fresh(118.9)


def test_the_refusal_names_the_setting() -> None:
    assert "security.access_age_max_ms (1500)" in Freshness(1.5).refusal("passwords")

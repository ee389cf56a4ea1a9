"""Sharing a sync: who waits for which group, and what a lost group takes with it."""

from __future__ import annotations

import pytest

from bookie.storage.core.group_commit import GroupCommit


def waiter(status) -> None:
    raise AssertionError("the core calls nobody")


def test_one_group_is_in_flight_and_one_is_open() -> None:
    commit = GroupCommit(5)
    first = commit.start()
    assert (first.number, commit.open.number) == (5, 6)
    with pytest.raises(AssertionError):
        commit.start()
    assert commit.synced() is first
    assert commit.settled_group == 5
    assert commit.start().number == 6


def test_waiting_for_a_group_joins_the_one_that_has_it() -> None:
    commit = GroupCommit(1)
    first = commit.start()
    assert commit.wait_for(1, waiter)
    assert commit.wait_for(2, waiter)
    assert (len(first.waiters), len(commit.open.waiters)) == (1, 1)
    commit.synced()
    assert not commit.wait_for(1, waiter)
    assert commit.wait_for(2, waiter)


def test_waiting_without_a_group_in_flight_joins_the_open_one() -> None:
    commit = GroupCommit(1)
    assert commit.wait_for(1, waiter)
    assert commit.open.waiters == [waiter]


def test_failure_gives_up_the_open_group_too() -> None:
    commit = GroupCommit(1)
    first = commit.start()
    second = commit.open
    assert commit.failed() == [first, second]
    assert commit.open.number == 3
    assert commit.in_flight is None
    # Nothing refers to a given-up group any more, so nobody can wait for it in vain.
    assert not commit.wait_for(2, waiter)
    assert commit.wait_for(3, waiter)


def test_results_need_a_group_in_flight() -> None:
    for settle in (GroupCommit.synced, GroupCommit.failed):
        with pytest.raises(AssertionError):
            settle(GroupCommit(1))

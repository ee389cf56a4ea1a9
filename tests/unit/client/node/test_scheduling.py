"""What is already set stays, and where there are no policies none is set."""

import os

import pytest

from client.node.process import apply_scheduling


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The policies that were set, after the first one, which this process has had."""
    found = [os.SCHED_OTHER]
    monkeypatch.setattr(os, "sched_getscheduler", lambda _pid: found[-1])
    monkeypatch.setattr(os, "sched_setscheduler", lambda _pid, policy, _param: found.append(policy))
    return found


def test_batch_is_set_once(policies: list[int]) -> None:
    assert apply_scheduling("batch")
    assert apply_scheduling("batch")
    assert policies == [os.SCHED_OTHER, os.SCHED_BATCH]


def test_normal_changes_nothing(policies: list[int]) -> None:
    assert not apply_scheduling("normal")
    assert policies == [os.SCHED_OTHER]


def test_a_policy_of_somebody_else_stays(policies: list[int]) -> None:
    policies[0] = os.SCHED_FIFO
    assert not apply_scheduling("batch")
    assert policies == [os.SCHED_FIFO]


@pytest.mark.usefixtures("policies")
def test_a_refused_call_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not apply_scheduling("batch")


def test_a_system_without_policies_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setscheduler")
    assert not apply_scheduling("batch")

"""The plan of strikes: order, ends, and waits for a cluster that is down altogether."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.chaos import campaign as module
from tests.chaos.campaign import Campaign, Plan, Unavailable
from tests.chaos.faults import Strike


class Progress:
    """Says of a cluster what a test wants."""

    count = 0

    def __init__(self) -> None:
        self.is_well = True

    def look(self) -> None:
        pass

    def silent_s(self) -> float:
        return 0.0 if self.is_well else 1000.0

    def silent(self, since_s: float) -> list[str]:
        return [] if self.is_well else ["partition 3"]


class Faults:
    """Two classes of faults, one of which never finds a victim."""

    def __init__(self) -> None:
        self.struck: list[str] = []
        self.undone: list[str] = []
        self.armed: dict[str, Callable[[], Strike | None]] = {
            "one": lambda: self._strike("one"),
            "two": lambda: self._strike("two"),
            "none": lambda: None,
        }

    def _strike(self, name: str) -> Strike:
        self.struck.append(name)
        return Strike(name, lambda: self.undone.append(name), 0.02)


def make(plan: Plan) -> tuple[Campaign, Faults, Progress]:
    faults, progress = Faults(), Progress()
    cluster = SimpleNamespace(members=[])
    said: list[str] = []
    return Campaign(plan, faults.armed, cluster, progress, said.append), faults, progress  # type: ignore[arg-type]


def test_each_class_comes_once_before_any_comes_again_and_all_is_undone() -> None:
    campaign, faults, _ = make(Plan(seed=1, every_s=0.02, for_s=0.5))
    campaign.run()
    assert len(faults.struck) >= 4
    for at in range(0, len(faults.struck) - 1, 2):
        assert {*faults.struck[at : at + 2]} == {"one", "two"}
    assert sorted(faults.undone) == sorted(faults.struck)
    assert campaign.counts.total() == len(faults.struck) == len(campaign.events)
    assert campaign.missed["none"] >= 1
    assert "none" not in campaign.counts


def test_counted_strikes_wait_for_the_recovery_from_the_one_before() -> None:
    campaign, faults, _ = make(Plan(seed=1, every_s=0.01, for_s=0.0, strikes=3))
    campaign.run()
    assert len(faults.struck) == len(faults.undone) == len(campaign.recoveries_s) == 3


def test_a_cluster_that_never_recovers_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECOVERY_S_MAX", 0.2)
    campaign, faults, progress = make(Plan(seed=1, every_s=0.01, for_s=60.0))
    progress.is_well = False
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="partition 3"):
        campaign.run()
    assert time.monotonic() - began_s < 10
    assert faults.struck == [], "nothing strikes what is down already"

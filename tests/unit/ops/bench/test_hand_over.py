"""The steps of planned moves: who is asked to do what, and which pause belongs to which step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import pytest

from ops.bench.figures import Run, Scale
from ops.bench.peers.system import PeerError
from ops.bench.workloads.brokers import hand_over


class System:
    """Three brokers, and two partitions that broker 2 leads until it is asked to hand over."""

    bootstrap_servers = "nowhere:1"

    def __init__(self) -> None:
        self.done: list[str] = []
        self.leaders: dict[int, int] = {0: 2, 1: 2}

    async def hand_over(self, broker: int) -> None:
        self.done.append(f"hand over {broker}")
        self.leaders = {0: 0, 1: 1}

    async def hand_back(self, broker: int) -> None:
        self.done.append(f"hand back {broker}")
        self.leaders = {0: broker, 1: 1}

    async def rolling_restart(self) -> None:
        self.done.append("rolling restart")


class Load:
    """Answers each mark with the next pause."""

    def __init__(self, job: str, **arguments: Any) -> None:
        self.job, self.arguments = job, arguments
        self.said: list[str] = []
        self._pauses_s = iter(((0.001, 0.002), (0.1, 0.05), (0.2, 0.3), (0.4, 0.5)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def say(self, word: str) -> None:
        self.said.append(word)

    async def event(self, name: str) -> Mapping[str, Any]:
        return {"pauses_s": next(self._pauses_s)} if name == "pauses" else {}


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()

    async def leaders(servers: str, topic: str) -> dict[int, int]:
        return system.leaders

    async def create(servers: str, topic: str, partitions: int) -> None:
        system.done.append(f"create {topic}")

    monkeypatch.setattr(hand_over.topics, "leaders", leaders)
    monkeypatch.setattr(hand_over.topics, "create", create)
    monkeypatch.setattr(hand_over, "LoadProcess", Load)
    return system


def test_each_step_has_the_longest_pause_of_its_span(system: System) -> None:
    run = Run(Scale(warm_up_s=0.0, settle_s=0.0, hand_over_partitions=(2,)))
    figures = asyncio.run(hand_over.measure(system, run))  # type: ignore[arg-type]
    assert system.done == ["create hand-over-2", "hand over 2", "hand back 2", "rolling restart"]
    assert [(one.workload, one.measure, one.value) for one in figures] == [
        ("pause: nothing moves, 2 partitions", "longest pause ms", 2.0),
        ("pause: planned hand-over, 2 partitions", "longest pause ms", 100.0),
        ("pause: hand-back, 2 partitions", "longest pause ms", 300.0),
        ("pause: rolling restart, 2 partitions", "longest pause ms", 500.0),
    ]


def test_a_broker_that_keeps_its_partitions_is_an_error(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over, "_MOVE_TIMEOUT_S", 0.0)
    with pytest.raises(PeerError, match="broker 2 still leads partitions"):
        asyncio.run(hand_over.until_led(system, "t", 2, at_all=False))  # type: ignore[arg-type]


def test_a_partition_without_a_leader_is_not_moved_yet(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over, "_MOVE_TIMEOUT_S", 0.0)
    system.leaders = {0: -1, 1: 0}
    with pytest.raises(PeerError):
        asyncio.run(hand_over.until_led(system, "t", 2, at_all=False))  # type: ignore[arg-type]

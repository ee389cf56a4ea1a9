"""Turns: rounds, budgets, going on after a break, what a failure costs, what is left behind."""

import asyncio
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from client.errors import QuireError
from ops.bench import compare, turns
from ops.bench.catalog import GB, WORKLOADS, Workload
from ops.bench.figures import Figure, Run, Scale
from ops.bench.peers.system import SystemName
from ops.bench.report import results
from ops.bench.systems import ALIKE_IN_SHORT, systems
from ops.bench.turns import Budget, Plan, Turns, blocks_of, check_disk, claimed
from ops.bench.workloads.brokers.partitions import wanted

README = Path(turns.__file__).parent / "README.md"
ABOUT = {"commit": "abc", "short": False, "is a result": True}


class System:
    """Notes what is done with it."""

    log: list[str] = []  # noqa: RUF012  shared on purpose, emptied by the fixture

    def __init__(self, name: str, folder: Path) -> None:
        self.about = SystemName(name, "none")
        self._folder = folder

    async def start(self) -> None:
        self._folder.mkdir()
        self.log.append(f"start {self.about.name}")

    async def stop(self) -> None:
        self.log.append(f"stop {self.about.name}")

    def settings(self) -> dict[str, str]:
        return {}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    System.log = []

    def systems(kind: str, *, peers: bool, short: bool) -> dict[str, Any]:
        names = ["quire", "peer"] if peers else ["quire"]
        return {name: lambda folder, name=name: System(name, folder) for name in names}

    monkeypatch.setattr(turns, "systems", systems)
    return System.log


def workload(
    name: str, measure: Callable[..., Any] | None = None, *, peers_in_short: bool = False
) -> Workload:
    async def one_figure(system: System, run: Run) -> list[Figure]:
        System.log.append(f"measure {name}")
        return [Figure(name, "MB/s", 1.0)]

    return Workload(name, measure or one_figure, "brokers", 1.0, lambda scale: 0, peers_in_short)


def plan(folder: Path, **changes: Any) -> Plan:
    made = Plan(
        scale=Scale(rounds=2), folder=folder, out=folder / "out", peers=True, short=False,
        resume=False, budget_s=None,
    )  # fmt: skip
    return made._replace(**changes)


def take(made: Plan, *workloads: Workload, about: dict[str, Any] = ABOUT) -> list[str]:
    return asyncio.run(Turns(made, dict(about)).take([[one] for one in workloads]))


def test_systems_take_turns_in_each_round_and_leave_nothing(tmp_path: Path, log: list[str]) -> None:
    assert take(plan(tmp_path), workload("produce")) == []
    starts = [line for line in log if line.startswith("start")]
    assert starts == ["start quire", "start peer", "start quire", "start peer"]
    assert log.count("stop quire") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert results.load(tmp_path / "out", "produce").rounds() == 2


def test_a_short_run_measures_peers_on_the_quick_workloads_alone(
    tmp_path: Path, log: list[str]
) -> None:
    block = [workload("produce", peers_in_short=True), workload("failover")]
    made = plan(tmp_path, short=True, scale=Scale(rounds=1))
    asyncio.run(Turns(made, dict(ABOUT)).take([block]))
    assert log == [
        "start quire", "measure produce", "measure failover", "stop quire",
        "start peer", "measure produce", "stop peer",
    ]  # fmt: skip
    log.clear()
    asyncio.run(Turns(made._replace(all_peers=True), dict(ABOUT)).take([block]))
    assert log[4:] == ["start peer", "measure produce", "measure failover", "stop peer"]
    log.clear()
    asyncio.run(Turns(made, dict(ABOUT)).take([block[1:]]))
    assert log == ["start quire", "measure failover", "stop quire"]


def test_the_readme_names_what_a_short_run_measures_with_peers() -> None:
    told = re.search(r"^A short run measures the peers.*?\n\n", README.read_text(), re.M | re.S)
    assert told is not None
    quick = [name for name, one in WORKLOADS.items() if one.peers_in_short]
    assert sorted(re.findall(r"`([a-z-]+)`", told[0].replace("--all-peers", ""))) == sorted(quick)


def test_a_resumed_run_takes_only_the_turns_that_lack(tmp_path: Path, log: list[str]) -> None:
    take(plan(tmp_path, scale=Scale(rounds=1)), workload("produce"))
    log.clear()
    take(plan(tmp_path, resume=True), workload("produce"))
    assert [line for line in log if line.startswith("start")] == ["start quire", "start peer"]
    assert len(results.load(tmp_path / "out", "produce").measured) == 4


def test_figures_of_other_code_are_not_gone_on_with(tmp_path: Path, log: list[str]) -> None:
    take(plan(tmp_path), workload("produce"))
    log.clear()
    take(plan(tmp_path, resume=True), workload("produce"), about={**ABOUT, "commit": "other"})
    assert len([line for line in log if line.startswith("start")]) == 4


def test_a_resumed_run_on_a_busy_machine_is_no_result(tmp_path: Path, log: list[str]) -> None:
    take(plan(tmp_path, scale=Scale(rounds=1)), workload("produce"))
    busy = {**ABOUT, "is a result": False}
    take(plan(tmp_path, resume=True), workload("produce"), about=busy)
    take(plan(tmp_path, resume=True), workload("produce"))
    assert results.load(tmp_path / "out", "produce").about["is a result"] is False


def test_a_failure_ends_its_workload_and_not_the_run(tmp_path: Path, log: list[str]) -> None:
    async def fails(system: System, run: Run) -> list[Figure]:
        raise QuireError("it broke\nwith details")

    failures = take(plan(tmp_path), workload("produce", fails), workload("failover"))
    assert failures == ["produce: it broke\nwith details"]
    assert log[:2] == ["start quire", "stop quire"], "what was started is stopped"
    found = results.load(tmp_path / "out", "produce")
    assert results.rounds_told(found) == "0 of 2 (failed: it broke)"
    assert results.load(tmp_path / "out", "failover").rounds() == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_budget_trims_rounds_and_says_so(tmp_path: Path, log: list[str]) -> None:
    take(plan(tmp_path, budget_s=1e-9), workload("produce"), workload("failover"))
    for name in ("produce", "failover"):
        found = results.load(tmp_path / "out", name)
        assert results.rounds_told(found) == "1 of 2 (the time budget)"


def test_a_block_that_took_less_leaves_its_time_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])
    budget = Budget(100.0, [30.0, 10.0])
    budget.begin()
    assert budget.allows(75.0) and not budget.allows(76.0)
    now[0] = 20.0
    budget.begin()
    assert budget.allows(80.0) and not budget.allows(81.0)


def test_without_a_budget_every_round_is_allowed() -> None:
    budget = Budget(None, [1.0])
    budget.begin()
    assert budget.allows(1e9)


def test_a_disk_without_room_is_refused_with_names_and_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 10 * GB

    monkeypatch.setattr(turns.shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(QuireError, match=r"has 10 GB free and `growth` needs \d\d GB"):
        check_disk(tmp_path, Scale(), WORKLOADS["growth"])
    check_disk(tmp_path, Scale(), WORKLOADS["hardware"])


def test_a_folder_is_one_run_s_alone_and_freed_of_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / "turn-x" / "data").mkdir(parents=True)
    with claimed(tmp_path):
        assert not list(tmp_path.iterdir())
        with pytest.raises(QuireError, match="another benchmark runs"), claimed(tmp_path):
            pass
    with claimed(tmp_path):
        pass


def test_a_long_run_gives_each_workload_fresh_systems_and_a_short_one_shares_them() -> None:
    def names(blocks: list[list[Workload]]) -> list[list[str]]:
        return [[one.name for one in block] for block in blocks]

    assert names(blocks_of(["failover", "produce"], short=False)) == [["produce"], ["failover"]]
    short = names(blocks_of(list(WORKLOADS), short=True))
    assert sorted(itertools.chain.from_iterable(short)) == sorted(WORKLOADS)
    brokers = next(block for block in short if "failover" in block)
    assert brokers[-1] == "failover"  # leaves a broker dead
    assert "produce" in brokers, "on the same start of the same systems"
    for kind, like in ALIKE_IN_SHORT.items():
        made = [systems(one, peers=True, short=True) for one in (kind, like)]
        assert [*made[0]] == [*made[1]]


@pytest.mark.parametrize("anyway", [False, True])
def test_a_busy_machine_gives_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyway: bool
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 1.0, 1.0))
    made = plan(tmp_path, peers=False, scale=Scale.short())
    if anyway:
        compare.check(["produce"], made, quiet=False, anyway=True)
    else:
        with pytest.raises(QuireError, match=r"load average is 2\.5"):
            compare.measure(["produce"], made, anyway=False)


def test_fixed_rates_need_the_maxima_of_produce(tmp_path: Path) -> None:
    made = plan(tmp_path, peers=False, scale=Scale.short())
    with pytest.raises(QuireError, match="has nothing of it"):
        compare.check(["fixed-rate"], made, quiet=True, anyway=False)
    results.save(made.out, results.Result("produce"))
    compare.check(["fixed-rate"], made, quiet=True, anyway=False)


def test_many_partitions_are_topics_of_a_thousand() -> None:
    assert wanted(12) == {"many-12-rest": 12}
    assert list(wanted(2_500).values()) == [1_000, 1_000, 500]
    assert len(wanted(10_000)) == 10


def test_the_readme_has_a_row_for_each_workload_with_its_minutes_and_rounds() -> None:
    found = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (\d+) \|", README.read_text(), re.MULTILINE)
    assert {name: (int(minutes), int(rounds)) for name, minutes, rounds in found} == {
        name: (round(one.minutes()), one.rounds) for name, one in WORKLOADS.items()
    }


def test_all_of_it_takes_less_than_three_hours() -> None:
    assert sum(workload.minutes() for workload in WORKLOADS.values()) <= 180


def test_each_workload_has_its_rounds_unless_they_are_asked_for(
    tmp_path: Path, log: list[str]
) -> None:
    own = plan(tmp_path, scale=Scale())
    take(own, workload("produce"), workload("failover")._replace(rounds=1))
    assert results.load(own.out, "produce").rounds() == 3
    assert results.load(own.out, "failover").rounds() == 1


@pytest.mark.parametrize("short", [False, True])
def test_only_the_jvms_of_a_short_run_compile_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dmine=1")
    arguments = ["--sum-up", "--out", str(tmp_path), *(["--short"] if short else [])]
    assert CliRunner().invoke(compare.main, arguments).exit_code == 0
    added = " -XX:TieredStopAtLevel=1" if short else ""
    assert os.environ["JDK_JAVA_OPTIONS"] == f"-Dmine=1{added}"

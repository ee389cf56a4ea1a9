"""Which integration tests stay in one process when two run side by side, and which begin when."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.conftest import LONGEST, TOGETHER, Shares, next_of, share_of

ROOT = Path(__file__).parents[2]


def test_a_file_stays_together() -> None:
    one, other = "tests/unit/test_a.py::test_x[a::b]", "tests/unit/test_a.py::test_y"
    assert share_of(one) == share_of(other) == "tests/unit/test_a.py"


def test_folders_with_dear_fixtures_stay_together_and_one_spark_is_enough() -> None:
    assert share_of("tests/integration/spark/test_sink.py::test_x") == "spark"
    assert share_of("tests/integration/test_bench.py::test_x") == "spark"
    assert share_of("tests/integration/page/test_page.py::test_x") == "page"


def test_the_long_shares_are_there() -> None:
    files = [share for share in LONGEST if share not in TOGETHER.values()]
    assert [share for share in files if not (ROOT / share).is_file()] == []
    assert [share for share in files if share_of(f"{share}::test_x") != share] == []


def test_the_longest_share_begins_first_and_others_in_their_order() -> None:
    assert next_of(["a.py", LONGEST[3], "b.py", LONGEST[1]]) == LONGEST[1]
    assert next_of(["b.py", "a.py"]) == "b.py"


def test_where_time_is_limited_the_order_is_that_of_the_run() -> None:
    shares = [*LONGEST, *(f"tests/integration/test_{number}.py" for number in range(20))]
    first = {next_of(shares, f"{1764150000 + run}") for run in range(20)}
    assert len(first) > 5
    assert next_of(shares, "1764150000") == next_of(reversed(shares), "1764150000")


@pytest.mark.parametrize(
    ("until", "marker", "begins"),
    [
        ("", "integration", True),
        ("9e9", "integration", True),
        ("5", "integration", False),
        ("5", "slow", True),
    ],
)
def test_what_has_not_begun_in_time_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, until: str, marker: str, *, begins: bool
) -> None:
    monkeypatch.setattr(conftest, "UNTIL", until)
    item: Any = SimpleNamespace(get_closest_marker=lambda name: name == marker)
    if begins:
        conftest.pytest_runtest_setup(item)
    else:
        with pytest.raises(pytest.skip.Exception, match="has had its time"):
            conftest.pytest_runtest_setup(item)


class Worker:
    """A process of xdist that is given tests."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.given += indexes

    def shutdown(self) -> None:
        self.shutting_down = True


def test_the_scheduler_gives_long_shares_to_the_first_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conftest, "UNTIL", "")
    many = [f"tests/integration/test_many.py::test_{number}" for number in range(9)]
    long = [f"{LONGEST[-1]}::test_x", "tests/integration/spark/test_sink.py::test_x"]
    tests = [*many, *long]
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["2*popen"], option=SimpleNamespace(loadscopereorder=True)
    )
    shares = Shares(config)
    workers: list[Any] = [Worker("a"), Worker("b")]
    for worker in workers:
        shares.add_node(worker)
    for worker in workers:
        shares.add_node_collection(worker, tests)
    shares.schedule()
    first = [tests[worker.given[0]] for worker in workers]
    assert first == [*reversed(long)]

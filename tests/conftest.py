"""What holds for all tests: their share of processes that run side by side, Hypothesis' time limit.

**Together** (`pytest -n 2 --dist loadscope`): a file is never torn apart, since its tests were
written to follow each other; and folders whose fixtures are dear (a Spark session, a browser,
Java's bookies) go to one process as a whole, so that it starts them once. Spark gives its workers
ten seconds to begin, so there is never more than one of it: the benchmark's short form belongs to
its tests. Long shares begin first, so that a run does not end with one process at a long one and
the other idle.

**Until**: continuous integration names the second at which it has had its time, in seconds since
1970 (`QUIRE_TESTS_UNTIL`). A test of real processes that has not begun by then does not begin, and
the summary names its file. Shares then begin in an order that differs from run to run, so that on a
machine that is too slow for all of them it is not always the same ones that are left out.

**Time**: Hypothesis gives no example a time limit of its own. A busy machine takes a second for
what is a millisecond elsewhere; what hangs meets the time limit of its test.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.fakes.patched_asyncio import patch_asyncio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdist.workermanage import WorkerController

TOGETHER = {
    "tests/integration/spark/": "spark",
    "tests/integration/test_bench.py": "spark",
    "tests/integration/test_wheel.py": "spark",
    "tests/integration/page/": "page",
    "tests/interop/bookkeeper/": "bookkeeper",
}

LONGEST = (
    "spark",
    "bookkeeper",
    "page",
    "tests/integration/clients/test_secured.py",
    "tests/integration/test_hostile_attacks.py",
    "tests/integration/moving/test_killed.py",
    "tests/integration/moving/test_moving.py",
    "tests/integration/differential/test_tools_beside_kafka.py",
    "tests/integration/differential/test_beside_kafka.py",
    "tests/integration/test_rolling_restart.py",
    "tests/integration/test_first_records.py",
    "tests/integration/clients/test_transactions.py",
    "tests/integration/clients/test_flink.py",
    "tests/integration/clients/test_debezium.py",
    "tests/integration/clients/test_kafka_connect.py",
    "tests/integration/clients/test_kafka_streams.py",
    "tests/integration/test_hostile_requests.py",
    "tests/integration/test_hostile_crowd.py",
    "tests/integration/test_memory.py",
    "tests/integration/test_overload.py",
    "tests/integration/test_self_healing.py",
    "tests/integration/test_compaction_crash.py",
)
"""Shares that take half a minute and more, the longest first. By themselves those of many tests
would begin first, and a long test that is alone in its file last."""

UNTIL = os.environ.get("QUIRE_TESTS_UNTIL", "")
TOO_LATE = "not run: continuous integration has had its time"

settings.register_profile("quire", deadline=None)
settings.load_profile("quire")
patch_asyncio()


def share_of(test: str) -> str:
    """Return which tests a test stays together with, by its id: those of its file, or folder."""
    path = test.partition("::")[0]
    return next((share for begin, share in TOGETHER.items() if path.startswith(begin)), path)


def next_of(shares: Iterable[str], until: str = "") -> str:
    """Return which of some shares begins next: the longest, or the first where none is long.

    Where time is limited it is any of them, the same in all processes of a run.
    """
    if until:
        return min(shares, key=lambda share: crc32(f"{until} {share}".encode()))
    rank = {share: at for at, share in enumerate(LONGEST)}
    return min(shares, key=lambda share: rank.get(share, len(LONGEST)))


class Shares(LoadScopeScheduling):
    """Gives each share to one process, as a whole, and the long ones first.

    Not by marks of the group `xdist_group`: with pytest 9.2, xdist 3.8 tells nobody of them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(next_of(self.workqueue, UNTIL), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Shares | None:
    """Divide the tests; other ways to distribute are xdist's business."""
    return Shares(config, log) if config.getvalue("dist") == "loadscope" else None  # type: ignore[arg-type]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Do not begin a test of real processes when continuous integration has had its time."""
    if UNTIL and time.time() > float(UNTIL) and item.get_closest_marker("integration"):
        pytest.skip(TOO_LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files of which tests were left out for want of time."""
    late = [
        report.nodeid.partition("::")[0]
        for report in terminalreporter.stats.get("skipped", ())
        if TOO_LATE in str(report.longrepr)
    ]
    if late:
        terminalreporter.section(f"{len(late)} tests {TOO_LATE}", "=", yellow=True)
        for path, count in sorted(Counter(late).items()):
            terminalreporter.write_line(f"{count:4} of {path}")

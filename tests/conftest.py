"""What holds for all tests: their share of processes that run side by side, Hypothesis' time limit.

**Together** (`pytest -n 2 --dist loadscope`): a file is never torn apart, since its tests were
written to follow each other; and folders whose fixtures are dear (a Spark session, a browser,
Java's bookies) go to one process as a whole, so that it starts them once. Spark gives its workers
ten seconds to begin, so there is never more than one of it: the benchmark's short form belongs to
its tests.

**Time**: Hypothesis gives no example a time limit of its own. A busy machine takes a second for
what is a millisecond elsewhere; what hangs meets the time limit of its test.
"""

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.fakes.mended_asyncio import mend

TOGETHER = {
    "tests/integration/spark/": "spark",
    "tests/integration/test_bench.py": "spark",
    "tests/integration/test_wheel.py": "spark",
    "tests/integration/page/": "page",
    "tests/interop/bookkeeper/": "bookkeeper",
}

settings.register_profile("quire", deadline=None)
settings.load_profile("quire")
mend()


def share_of(test: str) -> str:
    """Return which tests a test stays together with, by its id: those of its file, or folder."""
    path = test.partition("::")[0]
    return next((share for begin, share in TOGETHER.items() if path.startswith(begin)), path)


class Shares(LoadScopeScheduling):
    """Gives each share to one process, as a whole.

    Not by marks of the group `xdist_group`: with pytest 9.2, xdist 3.8 tells nobody of them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Shares | None:
    """Divide the tests; other ways to distribute are xdist's business."""
    return Shares(config, log) if config.getvalue("dist") == "loadscope" else None  # type: ignore[arg-type]

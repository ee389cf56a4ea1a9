"""What holds for all tests: their share of processes that run side by side, Hypothesis' time limit.

**Together** (`pytest -n 2 --dist loadgroup`): a file is never torn apart, since its tests were
written to follow each other; and folders whose fixtures are dear (a Spark session, a browser,
Java's bookies) go to one process as a whole, so that it starts them once. Spark gives its workers
ten seconds to begin, so there is never more than one of it: the benchmark's short form belongs to
its tests.

**Time**: Hypothesis gives no example a time limit of its own. A busy machine takes a second for
what is a millisecond elsewhere; what hangs meets the time limit of its test.
"""

from pathlib import Path

import pytest
from hypothesis import settings

TOGETHER = {
    "integration/spark/": "spark",
    "integration/test_bench.py": "spark",
    "integration/page/": "page",
    "interop/bookkeeper/": "bookkeeper",
}

settings.register_profile("quire", deadline=None)
settings.load_profile("quire")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        name = item.path.relative_to(here).as_posix()
        group = next((group for begin, group in TOGETHER.items() if name.startswith(begin)), name)
        item.add_marker(pytest.mark.xdist_group(group))

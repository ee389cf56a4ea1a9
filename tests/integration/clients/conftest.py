"""Foreign clients, unmodified, against one shared cluster.

Set QUIRE_TEST_BOOTSTRAP=host:port to run the same tests against any other Kafka broker: a test
that fails there too is wrong itself.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """Where the brokers are."""
    other = os.environ.get("QUIRE_TEST_BOOTSTRAP")
    if other:
        return other
    return str(request.getfixturevalue("cluster").bootstrap_servers)


_numbers = itertools.count()


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names for topics and groups that no other test uses."""
    test = request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")
    return lambda kind: f"{kind}-{test}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(fresh_name: Callable[[str], str]) -> str:
    """Name of a topic of this test alone; not created yet."""
    return fresh_name("topic")


@pytest.fixture
def group(fresh_name: Callable[[str], str]) -> str:
    """Name of a group of this test alone."""
    return fresh_name("group")

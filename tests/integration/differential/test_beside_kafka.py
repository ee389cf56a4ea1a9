"""Apache Kafka and Quire are asked the same; whatever differs is explained, or fails.

First by hand, all steps in all versions, then what a generator makes of a seed. Other seeds:
`python -m tests.integration.differential --seed 7 --requests 5000`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.differential.bases import BASES
from tests.integration.differential.campaign import classes, compare, sort_out
from tests.integration.differential.conversation import Party, converse, unexplained
from tests.integration.differential.explained import EXPLAINED, NEWER, NOT_SERVED, OLDER
from tests.integration.differential.explained_classes import (
    EXPLAINED_CLASSES,
    OF_OTHER_SEEDS,
)
from tests.integration.differential.pair import both
from tests.integration.differential.steps import DELETING, STEPS
from tests.integration.differential.steps.features import FEATURES
from tests.integration.differential.steps.group_members import GROUPS_WITH_MEMBERS
from tests.integration.differential.steps.transactions import TRANSACTIONS

_SEED = 20_261_125
_REQUESTS = 2_000


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """One broker of each kind, fresh, each the only one of its cluster and with the id 0."""
    with both(tmp_path_factory.mktemp("differential")) as found:
        yield found


async def test_the_same_versions_are_served(ports: tuple[int, int]) -> None:
    kafka, quire = Party(ports[0]), Party(ports[1])
    theirs, ours = await kafka.versions(), await quire.versions()
    await kafka.close()
    await quire.close()
    missing = [key for key in theirs if key not in ours]
    assert [key for key in missing if not any(key in keys for keys in NOT_SERVED)] == []
    assert [key for keys in NOT_SERVED for key in keys if key in ours] == [], "a stale row"
    older = [key for key, (_, high) in theirs.items() if key in ours and ours[key][1] < high]
    assert sorted(older) == sorted(OLDER)
    newer = [key for key, (low, high) in ours.items() if not _is_within(low, high, theirs.get(key))]
    assert newer == [*NEWER]


def _is_within(low: int, high: int, theirs: tuple[int, int] | None) -> bool:
    return theirs is not None and theirs[0] <= low and high <= theirs[1]


async def test_the_same_requests_have_the_same_answers(ports: tuple[int, int]) -> None:
    kafka, quire = Party(ports[0]), Party(ports[1])
    steps = (*STEPS, *GROUPS_WITH_MEMBERS, *TRANSACTIONS, *FEATURES, *DELETING)
    found, asked = await converse(steps, kafka, quire)
    await kafka.close()
    await quire.close()
    assert asked > 1_350
    left = unexplained(found, EXPLAINED)
    assert not left, "\n".join(map(str, left))


@pytest.fixture
def untouched(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Another two, which nobody has asked yet: what is generated is meant for them."""
    with both(tmp_path) as found:
        yield found


@pytest.mark.timeout(300)
async def test_generated_requests_have_the_same_answers(untouched: tuple[int, int]) -> None:
    found, plan = await compare(untouched, _SEED, _REQUESTS)
    assert {one.key for one in plan} == {*BASES}
    left, _, idle = sort_out(found, (*EXPLAINED_CLASSES, *OF_OTHER_SEEDS))
    assert not left, "\n".join(map(str, classes(left)))
    stale = [row.where for row in idle if row in EXPLAINED_CLASSES]
    assert not stale, f"nothing differs as these rows say: {stale}"

"""Schedules of whole clusters with an object store, and mistakes that they must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.offload.core import plan
from broker.offload.core.procedures import List, Prove, Upload
from broker.offload.offloader import Offloader
from broker.partition.archive import ArchivedReader
from client.log import offloaded
from client.log.offloaded import Drop, Intend
from tests.simulation import batch
from tests.simulation.mutants.table import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run(seeds: Sequence[int]) -> dict[str, int]:
    """Run schedules; return what they have met, all together."""
    return batch.run_clean(batch.Job(world="offload", seeds=seeds))


def test_the_invariants_hold_in_a_few_schedules() -> None:
    total = run([8, 10, 31])
    assert total["objects stored"] > 20
    assert total["ledgers given up"] > 15
    assert total["object reads"] > 40


@pytest.mark.slow
def test_the_invariants_hold() -> None:
    total = run(range(10, 40))
    assert total["objects stored"] > 200
    assert total["ledgers given up"] > 100
    assert total["uploads that arrive later"] > 0
    assert total["calls while the store was away"] > 20
    assert total["takeovers"] > 100


def drop_without_proof(patch: Patch) -> None:
    """A ledger goes although nobody has read its object back."""

    async def do(self: Offloader, partition: Any, act: Any) -> Any:
        return None if isinstance(act, Prove) else await original(self, partition, act)

    original = patch(Offloader, "_do", do)


def intent_after_upload(patch: Patch) -> None:
    """An object is sent before its name is listed."""
    intended: list[Any] = []

    async def do(self: Offloader, partition: Any, act: Any) -> Any:
        if isinstance(act, List) and isinstance(act.step, Intend):
            intended.append(act)
            return None
        outcome = await original(self, partition, act)
        if isinstance(act, Upload):
            await original(self, partition, intended.pop())
        return outcome

    original = patch(Offloader, "_do", do)


def names_are_used_again(patch: Patch) -> None:
    """The second attempt has the name of the first."""

    def fresh(self: Offloader, segment: Any) -> Any:
        return original(self, segment)._replace(attempt=1)

    original = patch(Offloader, "_fresh", fresh)


def ledger_before_list(patch: Patch) -> None:
    """The ledger is deleted before the list says that it is gone."""

    async def do(self: Offloader, partition: Any, act: Any) -> Any:
        if isinstance(act, List) and isinstance(act.step, Drop):
            await self._services.ledgers.delete(act.step.name.ledger_id)
        return await original(self, partition, act)

    original = patch(Offloader, "_do", do)


def graves_are_forgotten(patch: Patch) -> None:
    """An attempt that failed, or an object that was trimmed, is nobody's."""

    def buried(self: Any, names: Any, now_ms: Any) -> Any:
        del names, now_ms
        return self

    patch(offloaded.OffloadState, "buried", buried)


def deletes_are_believed(patch: Patch) -> None:
    """A grave is closed without a look whether the object has gone."""

    async def delete(self: Offloader, path: str) -> bool:
        del self, path
        return True

    patch(Offloader, "_delete", delete)


def tail_is_dropped(patch: Patch) -> None:
    """Ledgers go that a takeover needs."""
    for module in (offloaded, plan):
        patch(module, "needed", lambda listed: frozenset())


def entries_are_miscounted(patch: Patch) -> None:
    """Who reads the middle of a block gets its beginning."""

    async def read(self: ArchivedReader, first: Any, last: Any) -> Any:
        block = self.footer.blocks[self.footer.block_of(first)]
        return await original(self, block.first_entry, block.first_entry + last - first)

    original = patch(ArchivedReader, "read", read)


MISTAKES: Final[dict[Callable[[Patch], None], tuple[int, ...]]] = {
    drop_without_proof: tuple(range(40)),
    intent_after_upload: (0, 1),
    names_are_used_again: tuple(range(30)),
    ledger_before_list: (0, 1),
    graves_are_forgotten: tuple(range(30)),
    deletes_are_believed: tuple(range(40)),
    tail_is_dropped: tuple(range(20)),
    entries_are_miscounted: tuple(range(20)),
}
"""Mistake -> schedules in which it is looked for."""


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.__name__)
def test_a_mistake_is_found(mistake: Callable[[Patch], None]) -> None:
    patch = Patch()
    try:
        mistake(patch)
        for seed in MISTAKES[mistake]:
            (result,) = batch.run(batch.Job(world="offload", seeds=[seed]))
            if result.violation:
                return
    finally:
        patch.undo()
    raise AssertionError("no schedule has found it")

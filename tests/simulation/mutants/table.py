"""Planted defects: each must be found by the oracle, or the oracle is not worth trusting.

A mutant replaces methods of production objects inside a process that runs schedules; nothing of
it exists outside. Each is one mistake that somebody could make, several of them were made and
published: the numbers are those of Apache BookKeeper's issues. `PLANTS` is the table;
`python -m tests.simulation.mutation` runs it and prints what found which, and how fast.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.mutants import (
    administered,
    bookie,
    broker,
    client,
    compacted,
    compaction,
    consumer_groups,
    doubt,
    follower,
    load,
    read_only,
    recovery,
    secured,
    shares,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


class Mutant(NamedTuple):
    """One planted defect."""

    what: str
    """The mistake in a sentence."""
    plant: Callable[[Patch], None]
    world: str
    """Whose schedules find it."""
    kind: str
    """Which kind of its world's schedules it is hunted with (`swarm.KINDS`, `cluster_load.KINDS`,
    `transaction_plan.kind_of`); empty: all of them."""

    @property
    def where(self) -> str:
        """Whose schedules it is hunted with, in words."""
        return f"{self.world}: {self.kind}" if self.kind else self.world


class Patch:
    """Replaces attributes and puts them back."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []

    def __call__(self, owner: Any, name: str, replacement: Any) -> Any:
        """Put `replacement` into `owner.name`; return what was there.

        Raises KeyError when the production code has no such thing any more.
        """
        original = owner.__dict__[name]
        self._saved.append((owner, name, original))
        setattr(owner, name, replacement)
        return original

    def undo(self) -> None:
        """Put everything back."""
        for owner, name, original in reversed(self._saved):
            setattr(owner, name, original)
        self._saved.clear()


_KINDS = {
    "callback-failure-is-forgotten": "crowded",
    "callbacks-escape": "crowded",
    "credit-back-at-quorum": "busy",
    "credit-back-before-last-copy": "busy",
    "credit-back-on-disconnect": "busy",
    "credit-back-when-sent": "busy",
    "credit-back-when-written": "busy",
    "full-link-is-failed": "busy",
    "groups-have-no-end": "mixed",
    "little-waits-behind-much": "mixed",
    "shed-is-failed": "busy",
    "starved-stay-starved": "busy",
    "task-ends-in-silence": "crowded",
    "timeout-ends-leadership": "busy",
    "timeout-forgets-sequence": "busy",
    "timeout-is-success": "crowded",
    "unread-is-served": "busy",
    "forget-queue-after-change": "race",
    "flush-believed": "wreck",
    "old-log-not-synced": "wreck",
    "mark-is-not-durable": "wreck",
    "full-index-is-damaged": "wreck",
    "index-drops-what-finds-no-room": "wreck",
    "index-written-behind-half-a-record": "wreck",
    "lost-copy-hides-kept": "brimful",
    "lost-group-stays": "brimful",
    "lost-removal-forgotten": "brimful",
    "replaced-acks-count": "race",
    "stale-answers-count": "race",
    "start-at-lac": "race",
}
"""Mistakes that only one kind of schedules can show. `make sim-short` meets each of them, too, but
most of its schedules would be run in vain before."""


def world_and_kind(module: ModuleType, name: str) -> tuple[str, str]:
    """Return whose schedules a mistake is hunted with, and of which kind."""
    if module is follower:
        return module.WORLD, follower.kind_of(name)
    if name in getattr(module, "IN_CLUSTERS", ()):
        return "cluster", "transactions"
    kinds = getattr(module, "KINDS", _KINDS)
    return module.WORLD, kinds.get(name, module_kind(module))


def module_kind(module: ModuleType) -> str:
    """Return the kind of schedules that all of a module's mistakes are hunted with, if any."""
    return getattr(module, "KIND", "")


PLANTS: dict[str, Mutant] = {
    name: Mutant(
        (plant.__doc__ or "").strip(),
        plant,
        *world_and_kind(module, name),
    )
    for module in (
        client,
        bookie,
        broker,
        follower,
        load,
        read_only,
        recovery,
        compaction,
        compacted,
        secured,
        transactions,
        doubt,
        administered,
        consumer_groups,
        shares,
    )
    for name, plant in module.PLANTS.items()
}
PLANTS |= {
    f"{name}-in-a-cluster": Mutant(
        (plant.__doc__ or "").strip(), plant, "cluster", compaction.CLUSTER_KIND
    )
    for name, plant in compaction.PLANTS.items()
    if name not in compaction.OF_TRANSACTIONS
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a defect by name; nothing for an empty name."""
    patch = Patch()
    try:
        if name:
            PLANTS[name].plant(patch)
        yield
    finally:
        patch.undo()

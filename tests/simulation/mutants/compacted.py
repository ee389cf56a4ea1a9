"""Planted defects of compaction that only whole clusters can show; see `table.py`.

What they get wrong is between compaction and the rest: caches, copies, closes, sessions.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from broker.compaction import cleaning_round
from broker.compaction.compactor import Compactor
from broker.compaction.ledger_output import LedgerOutput
from broker.partition.partition_reader import PartitionReader

if TYPE_CHECKING:
    from collections.abc import Callable


def cache_outlives_the_swap(patch: Any) -> None:
    """What a leader keeps in memory is served after it was compacted."""

    def forget(self: PartitionReader, ledger_ids: Any, compacted_below: Any = 0) -> None:
        del compacted_below
        original(self, ledger_ids, 0)

    original = patch(PartitionReader, "forget", forget)


def compacted_has_one_copy(patch: Any) -> None:
    """Compacted ledgers get an ack quorum of one, whatever the topic asks for."""

    async def create(ledgers: Any, topic: Any, index: int, epoch: Any, **options: Any) -> Any:
        few = dataclasses.replace(topic.config, min_insync_replicas=1)
        fewer = dataclasses.replace(topic, config=few)
        return await original(ledgers, fewer, index, epoch, **options)

    original = patch(cleaning_round, "create_ledger", create)


def compacted_stays_open(patch: Any) -> None:
    """A compacted ledger is listed without having been closed."""

    async def finish(self: LedgerOutput) -> None:
        close, self._writer.close = self._writer.close, _nothing
        try:
            await original(self)
        finally:
            self._writer.close = close

    async def verify(self: LedgerOutput, ledgers: Any, memory: Any) -> None:
        del self, ledgers, memory

    original = patch(LedgerOutput, "finish", finish)
    patch(LedgerOutput, "verify", verify)


def failure_is_for_ever(patch: Any) -> None:
    """A partition whose round has failed is never tried again."""

    def failed(self: Compactor, partition: Any, error: Any) -> None:
        original(self, partition, error)
        self._partitions = [one for one in self._partitions if one is not partition]

    original = patch(Compactor, "_failed", failed)


async def _nothing() -> None:
    """Stand for a close."""


WORLD = "cluster"
KIND = "compacted"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not name.startswith("_")
}

"""Planted defects of auto recovery; see `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.autorecovery.fragment_replicator import FragmentReplicator

if TYPE_CHECKING:
    from collections.abc import Callable


def repair_copies_nothing(patch: Any) -> None:
    """A repair names new members without copying the entries to them."""

    async def copy_all(self: FragmentReplicator, *_: Any) -> int:
        del self
        return 0

    patch(FragmentReplicator, "_copy_all", copy_all)


def repair_closes_at_lac(patch: Any) -> None:
    """A repair closes an open ledger at what a reader sees of it, and fences nobody."""

    async def close(self: FragmentReplicator, ledger_id: Any) -> None:
        reader = await self._client.open(ledger_id, password=None)
        current = await self._context.nodes.read(ledger_id)
        await self._context.nodes.update(
            ledger_id,
            current,
            lambda known: None if known.is_closed else known.closed(reader.last_entry, 0),
        )

    patch(FragmentReplicator, "close", close)


WORLD = "cluster"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}

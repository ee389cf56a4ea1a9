"""Planted defects of ledgers whose metadata is in doubt, and of negatives; see `table.py`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from bookie.storage import storage
from client.ledger.ledger_nodes import LedgerNodes
from client.metadata.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

_SKIPS_SYNC: ContextVar[bool] = ContextVar("skips sync", default=False)


def without_sync(patch: Any, owner: Any, name: str) -> None:
    """Let a method read from its session's server as it is."""

    async def method(*arguments: Any, **options: Any) -> Any:
        token = _SKIPS_SYNC.set(True)
        try:
            return await original(*arguments, **options)
        finally:
            _SKIPS_SYNC.reset(token)

    async def sync(self: MemoryStore, path: str) -> None:
        if not _SKIPS_SYNC.get():
            await synced(self, path)

    original = patch(owner, name, method)
    synced = patch(MemoryStore, "sync", sync)


def metadata_is_read_back_without_a_sync(patch: Any) -> None:
    """What came of a change of a ledger is asked a server that may lag (READ-BACK)."""
    without_sync(patch, LedgerNodes, "_read_back")


def lost_group_ends_the_ledger(patch: Any) -> None:
    """After a group was lost, a ledger ends where the cache does, whatever is in the index."""

    def forget_lost(group: Any, ledgers: Any, cache: Any) -> None:
        known = {one[0] for one in group.entries if ledgers.get(one[0]).is_loaded}
        original(group, ledgers, cache)
        for ledger_id in known:
            ledgers.get(ledger_id).is_loaded = True

    original = patch(storage, "forget_lost", forget_lost)


WORLD = "ledger"
KINDS = {
    "lost-group-ends-the-ledger": "brimful",
    "metadata-is-read-back-without-a-sync": "doubt",
}
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and not name.startswith("_")
    and value is not without_sync
}

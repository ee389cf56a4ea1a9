"""New ledger ids, unique in the cluster, shared with every other BookKeeper client.

Covers id generation. Ids below 2^31 - 1 are the sequence numbers of ephemeral nodes `idgen/ID-`.
When that counter has run out, or somebody found that out before us (`idgen-long` exists), ids have
63 bits: the number of a directory `idgen-long/HOB-` above, the sequence number of an ephemeral
node in it below; the newest directory counts, and a full one is followed by the next. Many who ask
at the same time get a range of ids by one request, and the nodes behind it go by another one.

Sources: Apache BookKeeper `ZkLedgerIdGenerator`, `LongZkLedgerIdGenerator`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from client.errors import MetadataError, NodeExists, NoNode
from client.ids import LedgerId
from client.ledger.ledger_nodes import LedgerNodes
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background

log = logging.getLogger(__name__)

_SHORT_ID_MAX: Final = 2**31 - 2
_LOW_BITS: Final = 32


class LedgerIds:
    """Source of new ledger ids."""

    def __init__(self, store: MetadataStore, nodes: LedgerNodes, root: str) -> None:
        self._store = store
        self._nodes = nodes
        self._short_prefix = paths.ledger_id_prefix(root)
        self._long_root = f"{root}/idgen-long"
        self._is_long: bool | None = None
        """Whether the cluster uses 63-bit ids; None until we looked."""
        self._taken: list[str] = []
        """Nodes behind numbers that were taken, and are not needed any more."""
        self._tidying: dict[asyncio.Task[None], None] = {}

    async def next(self) -> LedgerId:
        """Return an id nobody was given before. Raises MetadataError."""
        ledger_id = await self.take()
        self.tidy()
        return ledger_id

    def tidy(self) -> None:
        """Delete the nodes behind ids that were taken, with whatever else is asked for now."""
        taken, self._taken = self._taken, []
        for path in taken:
            task = background.begin(self._delete(path), "tidy")
            self._tidying[task] = None
            task.add_done_callback(self._tidying.pop)

    async def take(self) -> LedgerId:
        """Return an id as `next` does; the node behind it stays until the next `tidy`.

        Raises MetadataError.
        """
        if self._is_long is None:
            self._is_long = (
                await self._nodes.retry(lambda: self._store.exists(self._long_root)) is not None
            )
        if not self._is_long:
            number = await self._take_number(self._short_prefix)
            if 0 <= number <= _SHORT_ID_MAX:
                return LedgerId(number)
            log.info("ledger_ids.long counter=%d", number)
            self._is_long = True
        return await self._next_long()

    async def _next_long(self) -> LedgerId:
        high = max(await self._high_parts(), default=0)
        if high == 0:
            high = await self._make_high_part(1)
        while True:
            number = await self._take_number(f"{self._long_root}/HOB-{high:010d}/ID-")
            if number >= 0:
                return LedgerId(high << _LOW_BITS | number)
            high = await self._make_high_part(high + 1)

    async def _high_parts(self) -> list[int]:
        try:
            names = await self._nodes.retry(lambda: self._store.children(self._long_root))
        except NoNode:
            return []
        return [int(name[4:]) for name in names if name[:4] == "HOB-" and name[4:].isdigit()]

    async def _make_high_part(self, high: int) -> int:
        path = f"{self._long_root}/HOB-{high:010d}"
        try:
            await self._nodes.retry(lambda: self._store.create(path, make_parents=True))
        except NodeExists:
            log.debug("ledger_ids.directory_exists path=%s", path)
        return high

    async def _take_number(self, prefix: str) -> int:
        """Return the next sequence number of a directory; negative once its counter overflowed.

        A node left over by a lost answer vanishes with our session, and its number is wasted.
        """
        requests = self._nodes.requests
        path = await self._nodes.retry(
            lambda: requests.create(prefix, ephemeral=True, sequential=True, make_parents=True)
        )
        self._taken.append(path)
        return int(path[len(prefix) :])

    async def _delete(self, path: str) -> None:
        try:
            await self._nodes.requests.delete(path)
        except MetadataError as error:
            log.debug("ledger_ids.not_deleted path=%s error=%r", path, error)

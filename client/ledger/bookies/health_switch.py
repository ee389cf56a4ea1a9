"""The operator's switch that ends quarantines everywhere: the node `disableHealthCheck`.

Source: Apache BookKeeper `ZKRegistrationClient`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from client.errors import MetadataError
from client.ledger.bookies.core.bookie_health import BookieHealth
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0


class HealthSwitch:
    """Tells `health` whether quarantines count."""

    def __init__(self, store: MetadataStore, root: str, health: BookieHealth) -> None:
        self._store = store
        self._path = paths.health_check_disabled(root)
        self._health = health
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look, and go on looking. Raises MetadataError."""
        await self._look()

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        is_disabled = await self._store.exists(self._path, self._on_change) is not None
        self._health.has_quarantine = not is_disabled

    def _on_change(self) -> None:
        if self._task is None or self._task.done():
            self._task = background.keep(self._look_again, "health-switch")

    async def _look_again(self) -> None:
        while True:
            try:
                return await self._look()
            except MetadataError as error:
                log.warning("health_switch.unknown error=%r", error)
                await asyncio.sleep(_RETRY_S)

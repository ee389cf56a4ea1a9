"""Allocates producer ids, never the same twice in a cluster.

Each broker takes blocks of ids from one node by compare-and-set and hands them out one by one. A
block whose allocation was not answered may have been taken, so it is given up: there are plenty. A
broker that stops wastes the rest of its block.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import RequestTimedOut
from client.errors import ConnectionLoss, LogCorrupt, NodeExists, NoNode, VersionConflict
from client.ids import ProducerId
from client.metadata import paths
from client.metadata.json_node import NO_FIELDS, carried, read_object, whole
from client.metadata.store import MetadataStore

BLOCK_SIZE: Final = 1_000
_FIELDS: Final = frozenset(("version", "next"))
_ID_MAX: Final = (1 << 63) - 1
_TRY_COUNT_MAX: Final = 32


class ProducerIds:
    """Hands out producer ids."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def take(self) -> ProducerId:
        """Return an id that nobody else has or will get. Raises MetadataError."""
        async with self._lock:
            if self._next == self._end:
                self._next = await self._take_block()
                self._end = self._next + BLOCK_SIZE
            taken = ProducerId(self._next)
            self._next += 1
            return taken

    async def _take_block(self) -> int:
        for _ in range(_TRY_COUNT_MAX):
            try:
                node = await self._store.get(paths.PRODUCER_IDS)
            except NoNode:
                with contextlib.suppress(NodeExists, ConnectionLoss):
                    await self._store.create(paths.PRODUCER_IDS, _encode(0), make_parents=True)
                continue  # read again: it is there, or not yet
            first = self._store.unreadable.decode(paths.PRODUCER_IDS, node.data, decode)
            if first > _ID_MAX - BLOCK_SIZE:
                raise LogCorrupt(f"all producer ids are used up, the next would be {first}")
            try:
                data = _encode(first + BLOCK_SIZE, carried(node.data, _FIELDS))
                await self._store.set(paths.PRODUCER_IDS, data, node.version)
            except (VersionConflict, ConnectionLoss):
                continue
            return first
        raise RequestTimedOut("no block of producer ids could be allocated")


def _encode(first: int, kept: Mapping[str, Any] = NO_FIELDS) -> bytes:
    """`kept`: fields that only another release knows."""
    return json.dumps({**kept, "version": 1, "next": first}).encode()


def decode(data: bytes) -> int:
    try:
        fields = read_object(data)
        if fields["version"] == 1:
            return whole(fields, "next")
    except (ValueError, KeyError) as error:
        raise LogCorrupt(f"{paths.PRODUCER_IDS} is not readable: {error!r}") from error
    raise LogCorrupt(f"{paths.PRODUCER_IDS} is not readable")

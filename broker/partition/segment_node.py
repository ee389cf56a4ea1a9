"""The metadata node that holds a partition's segment list.

Covers reading and changing it. A change is a compare-and-set on the node's version; when the
answer gets lost the node is read back, from a server that has caught up, and our own bytes in it,
one version on, are the proof of success.
"""

from __future__ import annotations

from broker.cluster.core.topology import TopicInfo
from client.errors import ConnectionLoss, NodeExists, NoNode, VersionConflict
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore


class SegmentNode:
    """One partition's node."""

    def __init__(self, store: MetadataStore, topic: TopicInfo, index: int) -> None:
        self._store = store
        self.path = paths.partition(topic.id_text, index)

    async def read(self) -> tuple[SegmentList, int]:
        """Return the list and its version; a missing node is made. Raises MetadataError."""
        while True:
            try:
                node = await self._store.get(self.path)
            except NoNode:
                await self._make()
                continue
            return decode_segments(node.data), node.version

    async def read_back(self) -> tuple[SegmentList, int]:
        """Like `read`, after everything that happened before. A missing node raises NoNode."""
        await self._store.sync(self.path)
        node = await self._store.get(self.path)
        return decode_segments(node.data), node.version

    async def set(self, segments: SegmentList, expected_version: int) -> int:
        """Try one compare-and-set; return the new version.

        Raises VersionConflict and NoNode (nothing happened), ConnectionLoss and SessionExpired
        (it may have happened).
        """
        return await self._store.set(self.path, segments.encode(), expected_version)

    async def change(self, segments: SegmentList, expected_version: int) -> int:
        """Compare-and-set with lost answers settled; return the new version.

        Raises VersionConflict: somebody else changed the list, or deleted it. SessionExpired
        leaves the outcome unknown.
        """
        data = segments.encode()
        unsettled = False
        while True:
            try:
                return await self._store.set(self.path, data, expected_version)
            except NoNode as error:
                raise VersionConflict(f"{self.path} is gone") from error
            except VersionConflict:
                if not unsettled:
                    raise
            except ConnectionLoss:
                unsettled = True
            version = await self._find(data, expected_version)
            if version is not None:
                return version

    async def _find(self, data: bytes, expected_version: int) -> int | None:
        """Return our change's version if it is there, None if nothing has changed yet."""
        try:
            await self._store.sync(self.path)
            node = await self._store.get(self.path)
        except NoNode as error:
            raise VersionConflict(f"{self.path} is gone") from error
        except ConnectionLoss:
            return None
        if node.version == expected_version:
            return None
        if node.version == expected_version + 1 and node.data == data:
            return node.version
        raise VersionConflict(f"{self.path} has version {node.version}, not {expected_version}")

    async def _make(self) -> None:
        try:
            await self._store.create(self.path, SegmentList().encode(), make_parents=True)
        except (NodeExists, ConnectionLoss):
            return  # somebody made it; or the next read tells

"""The metadata node that holds a partition's segment list, and the pages that it names.

Covers reading and changing it: pages that a change makes are there before the node names them
(PAGE-FIRST). A change is a compare-and-set on the node's version; when the
answer gets lost the node is read back, from a server that has caught up, and our own bytes in it,
one version on, are the proof of success.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.cluster.core.topology import TopicInfo
from client.errors import ConnectionLoss, NodeExists, NoNode, VersionConflict
from client.log.segment_pages import NewPage, PageRef
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.store import Versioned
from client.node.grouped_requests import GroupedRequests
from client.segments.page_nodes import delete_pages, write_page
from client.segments.pages import PageCache, SegmentPages


def decoded(node: Versioned) -> tuple[SegmentList, int]:
    """Return the list and its version. Raises LogCorrupt."""
    return decode_segments(node.data), node.version


class SegmentNode:
    """One partition's node."""

    def __init__(
        self,
        requests: GroupedRequests,
        topic: TopicInfo,
        index: int,
        cache: PageCache | None = None,
    ) -> None:
        self._requests = requests
        self._store = store = requests.store
        self.path = paths.partition(topic.id_text, index)
        self.pages = SegmentPages(store, self.path, cache)

    async def read(self) -> tuple[SegmentList, int]:
        """Return the list and its version; a missing node is made. Raises MetadataError."""
        while True:
            try:
                node = await self._requests.get(self.path)
            except NoNode:
                await self._make()
                continue
            return decoded(node)

    async def read_back(self) -> tuple[SegmentList, int]:
        """Like `read`, after everything that happened before. A missing node raises NoNode."""
        await self._store.sync(self.path)
        node = await self._store.get(self.path)
        return decoded(node)

    async def write_pages(self, pages: Sequence[NewPage]) -> None:
        """Make the pages that a change of the list will name; they are there afterwards.

        Raises NoNode if the partition is not there any more, SessionExpired, LogCorrupt.
        """
        for page in pages:
            await write_page(self._store, self.path, page)

    async def delete_pages(self, pages: Iterable[PageRef]) -> None:
        """Delete pages that the list has let go. Raises MetadataError; the sweep does the rest."""
        await delete_pages(self._store, self.path, (ref.name for ref in pages))

    async def set(self, segments: SegmentList, expected_version: int) -> int:
        """Try one compare-and-set; return the new version.

        Raises VersionConflict and NoNode (nothing happened), ConnectionLoss and SessionExpired
        (it may have happened).
        """
        return await self._requests.set(self.path, segments.encode(), expected_version)

    async def change(self, segments: SegmentList, expected_version: int) -> int:
        """Compare-and-set with lost answers settled; return the new version.

        Raises VersionConflict: somebody else changed the list, or deleted it. SessionExpired
        leaves the outcome unknown.
        """
        data = segments.encode()
        unsettled = False
        while True:
            try:
                return await self._requests.set(self.path, data, expected_version)
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

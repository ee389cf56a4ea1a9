"""The metadata node that holds a partition's segment list, and the pages that it names.

New pages are created before the node names them (PAGE-FIRST). A change is a compare-and-set on the
node's version. If its answer is lost, the node is read again after a sync: our own bytes at the
next version prove that it succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.cluster.core.topology import TopicInfo
from client.errors import ConnectionLoss, NodeExists, NoNode, VersionConflict
from client.log.segment_object import folder_of
from client.log.segment_pages import NewPage, PageRef
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.store import Change, SetData, Versioned
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
        self.folder = folder_of(topic.id_text, index)
        """Where the object store has its segments."""
        self.pages = SegmentPages(store, self.path, cache)

    def decoded(self, node: Versioned) -> tuple[SegmentList, int]:
        """Like the function; a list that cannot be read is named to operators."""
        return self._store.unreadable.decode(self.path, node.data, decode_segments), node.version

    async def read(self) -> tuple[SegmentList, int]:
        """Return the list and its version; create a missing node.

        Raises NoNode if the topic's directory is missing: the topic was deleted. MetadataError.
        """
        while True:
            try:
                node = await self._requests.get(self.path)
            except NoNode:
                await self._make()
                continue
            return self.decoded(node)

    async def read_back(self) -> tuple[SegmentList, int]:
        """Like `read`, after a sync, so that all earlier changes are seen. Raises NoNode if the
        node is missing."""
        await self._store.sync(self.path)
        node = await self._store.get(self.path)
        return self.decoded(node)

    async def write_pages(self, pages: Sequence[NewPage]) -> None:
        """Create the pages that a change of the list will name.

        Raises NoNode if the partition was deleted, SessionExpired, LogCorrupt.
        """
        for page in pages:
            await write_page(self._store, self.path, page)

    async def delete_pages(self, pages: Iterable[PageRef]) -> None:
        """Delete pages that are no longer listed. Raises MetadataError; the sweep deletes the
        rest."""
        await delete_pages(self._store, self.path, (ref.name for ref in pages))

    async def set(
        self, segments: SegmentList, expected_version: int, first: Sequence[Change] = ()
    ) -> int:
        """Try one compare-and-set; return the new version.

        `first`: other changes in the same transaction. Raises VersionConflict, NoNode and
        NodeExists (nothing happened), ConnectionLoss and SessionExpired (all of it may have
        happened).
        """
        data = segments.encode()
        if not first:
            return await self._requests.set(self.path, data, expected_version)
        made = await self._requests.multi([*first, SetData(self.path, data, expected_version)])
        version = made[-1]
        assert isinstance(version, int)
        return version

    async def change(self, segments: SegmentList, expected_version: int) -> int:
        """Compare-and-set, and find out the outcome if an answer is lost; return the new version.

        Raises VersionConflict: another broker changed or deleted the list. SessionExpired: the
        outcome is unknown.
        """
        data = segments.encode()
        unsettled = False
        while True:
            try:
                return await self._requests.set(self.path, data, expected_version)
            except NoNode as error:
                raise VersionConflict(f"{self.path} was deleted") from error
            except VersionConflict:
                if not unsettled:
                    raise
            except ConnectionLoss:
                unsettled = True
            version = await self._find(data, expected_version)
            if version is not None:
                return version

    async def _find(self, data: bytes, expected_version: int) -> int | None:
        """Return the version of our change if it has happened, None if nothing has changed yet."""
        try:
            await self._store.sync(self.path)
            node = await self._store.get(self.path)
        except NoNode as error:
            raise VersionConflict(f"{self.path} was deleted") from error
        except ConnectionLoss:
            return None
        if node.version == expected_version:
            return None
        if node.version == expected_version + 1 and node.data == data:
            return node.version
        raise VersionConflict(f"{self.path} has version {node.version}, not {expected_version}")

    async def _make(self) -> None:
        try:
            # Never the topic's directory: changes of the topic are bound to its version.
            await self._store.create(self.path, SegmentList().encode())
        except (NodeExists, ConnectionLoss):
            return  # another broker created it, or the next read shows the outcome

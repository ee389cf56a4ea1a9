"""Writes and deletes the nodes of pages, and finds those that no list can name any more.

A page is created, never set: if a node of its name is there, it is our own from an attempt whose
answer got lost (PAGE-NAME), and its bytes prove it. So writing may be repeated as often as it
takes, and be broken off anywhere. What is left behind then is an orphan: no head names it, and none
can once the list has reached a later epoch than that in its name, because the compare-and-set of
whoever made it can no longer succeed (SWEEP).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from client.errors import ConnectionLoss, LogCorrupt, NodeExists, NoNode, NotEmpty
from client.log.segment_pages import NewPage, PageName
from client.log.segments import decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.segments.pages import SegmentPages


async def write_page(store: MetadataStore, partition_path: str, new: NewPage) -> None:
    """Make a page's node; it is there afterwards.

    Raises NoNode if the partition is not there any more, LogCorrupt if somebody else's bytes are.
    """
    path = paths.segment_page(partition_path, *new.name)
    data = new.page.encode()
    while True:
        try:
            await store.create(path, data)
            return
        except NoNode:
            await _make_folders(store, partition_path, new.name)
        except NodeExists:
            await store.sync(path)
            with contextlib.suppress(NoNode):
                if (await store.get(path)).data != data:
                    raise LogCorrupt(f"{path} holds a different page") from None
                return
        except ConnectionLoss:
            continue


async def _make_folders(store: MetadataStore, partition_path: str, name: PageName) -> None:
    """Never the partition's own node: who deletes a topic must not find it there again."""
    for path in (paths.segment_pages(partition_path), paths.page_folder(partition_path, name[0])):
        with contextlib.suppress(NodeExists, ConnectionLoss):
            await store.create(path)


async def delete_pages(
    store: MetadataStore, partition_path: str, names: Iterable[PageName]
) -> None:
    """Delete the nodes of pages that no list names. A missing one is no error."""
    folders: dict[str, None] = {}
    for name in names:
        folders[paths.page_folder(partition_path, name.number)] = None
        with contextlib.suppress(NoNode):
            await store.delete(paths.segment_page(partition_path, *name))
    for folder in folders:
        with contextlib.suppress(NoNode, NotEmpty):
            await store.delete(folder)


async def delete_all_pages(store: MetadataStore, partition_path: str) -> None:
    """Delete what a deleted partition had of pages."""
    top = paths.segment_pages(partition_path)
    with contextlib.suppress(NoNode):
        for folder in await store.children(top):
            for name in await store.children(f"{top}/{folder}"):
                with contextlib.suppress(NoNode):
                    await store.delete(f"{top}/{folder}/{name}")
            await store.delete(f"{top}/{folder}")
        await store.delete(top)


async def orphan_pages(store: MetadataStore, partition_path: str) -> list[PageName]:
    """Return pages that no list names, and none ever can.

    Raises MetadataError; NoNode if the list changed meanwhile, or the partition is gone.
    """
    there: list[PageName] = []
    top = paths.segment_pages(partition_path)
    try:
        for folder in await store.children(top):
            names = (paths.page_name(name) for name in await store.children(f"{top}/{folder}"))
            there += [PageName(*name) for name in names if name is not None]
    except NoNode:
        return []
    if not there:
        return []
    await store.sync(partition_path)
    listed = decode_segments((await store.get(partition_path)).data)
    named = await SegmentPages(store, partition_path).names(listed)
    return [name for name in there if name not in named and name.leader_epoch < listed.leader_epoch]

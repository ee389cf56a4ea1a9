"""Writing and deleting pages: repeatable everywhere, and harmless when broken off."""

from __future__ import annotations

import pytest

from client.errors import LogCorrupt, NoNode
from client.ids import LeaderEpoch, LedgerId
from client.log.segment_pages import NewPage, Page, PageName
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster
from client.segments.page_nodes import (
    delete_all_pages,
    delete_pages,
    orphan_pages,
    write_page,
)
from tests.fakes.segment_lists import PATH, long_list, sealed, stored

PAGE = Page((sealed(0), sealed(1)))


def new_page(number: int = 0, epoch: int = 0, ledger: int = 2, page: Page = PAGE) -> NewPage:
    return NewPage(PageName(number, LeaderEpoch(epoch), LedgerId(ledger)), page)


async def partition() -> MemoryCluster:
    cluster = MemoryCluster()
    await cluster.session().create(PATH, make_parents=True)
    return cluster


def node_of(new: NewPage) -> str:
    return paths.segment_page(PATH, *new.name)


async def test_a_page_is_written_once_however_often_it_is_tried() -> None:
    cluster = await partition()
    for _ in range(3):
        await write_page(cluster.session(), PATH, new_page())
    node = cluster.tree.get(node_of(new_page()))
    assert (node.data, node.version) == (PAGE.encode(), 0)


@pytest.mark.parametrize("fault", list(Fault))
async def test_lost_answers_are_asked_for_again(fault: Fault) -> None:
    cluster = await partition()
    pending = [fault] * 5
    cluster.on_request = lambda request: (
        pending.pop() if pending and request.name == "create" else None
    )
    await write_page(cluster.session(), PATH, new_page())
    assert not pending
    assert cluster.tree.get(node_of(new_page())).data == PAGE.encode()


async def test_another_page_of_our_name_is_an_error_and_stays() -> None:
    cluster = await partition()
    await write_page(cluster.session(), PATH, new_page())
    other = Page((sealed(1), sealed(2)))
    with pytest.raises(LogCorrupt, match="holds a different page"):
        await write_page(cluster.session(), PATH, new_page(page=other))
    assert cluster.tree.get(node_of(new_page())).data == PAGE.encode()


async def test_leaders_do_not_stand_in_each_others_way() -> None:
    """PAGE-NAME: the same number, another epoch or another ledger."""
    cluster = await partition()
    other = Page((sealed(1), sealed(2)))
    first, second, third = new_page(), new_page(epoch=1, page=other), new_page(ledger=3, page=other)
    for new in (first, second, third):
        await write_page(cluster.session(), PATH, new)
    assert cluster.tree.get(node_of(first)).data == PAGE.encode()
    assert cluster.tree.get(node_of(second)).data == other.encode()
    assert cluster.tree.get(node_of(third)).data == other.encode()


async def test_a_deleted_partition_is_not_made_again() -> None:
    cluster = await partition()
    await cluster.session().delete(PATH)
    with pytest.raises(NoNode):
        await write_page(cluster.session(), PATH, new_page())
    assert cluster.tree.children(paths.topic_partitions("id")) == []


async def test_pages_stand_in_folders_that_go_with_their_last_page() -> None:
    """ZooKeeper answers the children of a node in one message."""
    cluster = await partition()
    store = cluster.session()
    near, far = [new_page(at) for at in (0, 999)], new_page(1000)
    for new in (*near, far):
        await write_page(store, PATH, new)
    top = paths.segment_pages(PATH)
    assert cluster.tree.children(top) == ["0000000", "0000001"]
    await delete_pages(store, PATH, [near[0].name, near[0].name, far.name])
    assert cluster.tree.children(top) == ["0000000"]
    await delete_pages(store, PATH, [near[1].name])
    assert cluster.tree.children(top) == []
    await write_page(store, PATH, far)
    await delete_all_pages(store, PATH)
    await delete_all_pages(store, PATH)
    assert cluster.tree.children(PATH) == []


async def test_orphans_are_pages_of_earlier_epochs_that_no_list_names() -> None:
    """SWEEP: those of the list's own epoch may be about to be named."""
    listed = long_list(30, segments_per_epoch=6)
    assert listed.leader_epoch == 5
    head, cluster = await stored(listed, 3)
    store = cluster.session()
    assert await orphan_pages(store, PATH) == []
    old, young = new_page(99, epoch=4), new_page(99, epoch=5)
    for new in (old, young):
        await write_page(store, PATH, new)
    await store.create(f"{paths.segment_pages(PATH)}/0000000/somebody's")
    assert await orphan_pages(store, PATH) == [old.name]
    await store.set(PATH, head._replace(leader_epoch=LeaderEpoch(6)).encode())
    assert await orphan_pages(store, PATH) == [old.name, young.name]


async def test_a_list_without_pages_has_no_orphans() -> None:
    cluster = await partition()
    assert await orphan_pages(cluster.session(), PATH) == []
    await cluster.session().delete(PATH)
    assert await orphan_pages(cluster.session(), PATH) == []


async def test_a_list_that_changes_meanwhile_is_left_for_the_next_round() -> None:
    head, cluster = await stored(long_list(30), 3)
    store = cluster.session()
    await store.delete(paths.segment_page(PATH, *head.pages[0].name))
    with pytest.raises(NoNode):
        await orphan_pages(store, PATH)

"""Looks for nodes in ZooKeeper that this release cannot decode, and says what to do about each.

Brokers and bookies go on beside such nodes, and leave them alone (UNREADABLE-STAYS, `client/
metadata/unreadable.py`); somebody has to see to them all the same. Every kind of node is looked at
that a cluster has few of, and so many segment lists with their pages, marks and ledgers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from bookie.membership.cookie import decode_cookie
from broker.cluster.core.features import Finalized
from broker.cluster.core.topic_config import TOPIC_KEYS
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.security import acl_store, quota_store, users
from broker.settings import live_settings
from broker.topics import producer_ids
from broker.topics.core.topic_rules import check_name
from client.autorecovery.switches import decode_delay
from client.autorecovery.tree import ReplicationTree, decode_checked_ms
from client.errors import NoNode, QuireError
from client.ids import BookieId, BrokerId
from client.ledger.bookies.bookie_directory import parse_service_info
from client.ledger.core import metadata_codec
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.under_replication import decode_mark
from client.log.segment_pages import Page, PageRef, decode_page
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.metadata.unreadable import ADVICE
from ops.doctor.findings import Finding, fine, trouble, warning

_CHECK: Final = "nodes"
_ME: Final = BookieId("quire-doctor")
_NAMED_MAX: Final = 20
_LISTS_MAX: Final = 10_000
_LEDGERS_MAX: Final = 10_000
"""Of the others speak the log and `quire_metadata_unreadable_nodes` of whoever reads them."""
_READ_AT_ONCE: Final = 256
_WHY_CHARS_MAX: Final = 300
_ADVICE: Final = f"{ADVICE[0].upper()}{ADVICE[1:]}."

Decode = Callable[[str, bytes], object]
"""Raises QuireError or ValueError if a node, with that name and these bytes, cannot be read."""


def directories(root: str) -> Mapping[str, Decode]:
    """Return directory -> how its nodes are read. `root`: of BookKeeper's tree."""
    return {
        paths.BROKERS: lambda name, data: BrokerInfo.decode(BrokerId(int(name)), data),
        paths.USERS: users.decode,
        paths.ACLS: acl_store.decode,
        paths.QUOTAS: quota_store.decode,
        paths.BROKER_CONFIGS: live_settings.decode,
        paths.CLIENT_METRICS_CONFIGS: live_settings.decode,
        paths.DELETED: _tombstone,
        paths.GROUP_CONFIGS: live_settings.decode,
        paths.cookies(root): lambda name, data: decode_cookie(data, name),
        paths.available(root): _bookie,
        paths.readonly(root): _bookie,
    }


SINGLE: Final[Mapping[str, Callable[[bytes], object]]] = {
    paths.FEATURES: Finalized.decode,
    paths.PRODUCER_IDS: producer_ids.decode,
}


def of_recovery(root: str) -> Mapping[str, Callable[[bytes], object]]:
    """Return the single nodes of auto recovery, and how each is read. `root`: of BookKeeper's
    tree."""
    return {
        paths.lost_bookie_delay(root): decode_delay,
        paths.all_ledgers_checked(root): decode_checked_ms,
    }


async def check_nodes(store: MetadataStore, root: str) -> list[Finding]:
    """Every node that cannot be read is trouble; settings of topics that are carried along, a
    warning. Raises MetadataError."""
    found: list[Finding] = []
    count = 0
    async for path, node in _look_at_all(store, root):
        if isinstance(node, TopicInfo):
            found += _carried(path, node)
        if not isinstance(node, Exception):
            continue
        count += 1
        if count <= _NAMED_MAX:
            why = str(node)[:_WHY_CHARS_MAX]
            found.append(trouble(_CHECK, f"{path} cannot be read: {why}", _ADVICE))
    if count > _NAMED_MAX:
        more = count - _NAMED_MAX
        found.append(trouble(_CHECK, f"{more} more nodes cannot be read", _ADVICE))
    return found or [fine(_CHECK, "this release can read the nodes in ZooKeeper")]


def _carried(path: str, topic: TopicInfo) -> list[Finding]:
    config = topic.config
    if not config.carried:
        return []
    shown = ", ".join(
        f"{name[:100]} ({config.value(name) or 'nothing'} holds)"
        if name in TOPIC_KEYS
        else f"{name[:100]} (unknown)"
        for name in list(config.carried)[:_NAMED_MAX]
    )
    return [
        warning(
            _CHECK,
            f"{path} has settings that this release does not understand: {shown}",
            "Fine during an upgrade; otherwise set them anew (`quire topic alter`).",
        )
    ]


async def _look_at_all(
    store: MetadataStore, root: str
) -> AsyncIterator[tuple[str, object | Exception]]:
    """Yield path and value of each node, or why it cannot be read."""
    for directory, decode in directories(root).items():
        for name in await _children(store, directory):
            if (directory, name) != (paths.available(root), "readonly"):
                yield await _read(store, f"{directory}/{name}", partial(decode, name))
    for path, decode_one in {**SINGLE, **of_recovery(root)}.items():
        yield await _read(store, path, decode_one)
    lists = 0
    for name in await _children(store, paths.TOPICS):
        path, topic = await _read(store, paths.topic(name), partial(TopicInfo.decode, name))
        yield path, topic
        if not isinstance(topic, TopicInfo):
            continue
        for index in range(topic.partition_count):
            if lists < _LISTS_MAX:
                lists += 1
                path, listed = await _read(
                    store, paths.partition(topic.id_text, index), decode_segments
                )
                yield path, listed
                for ref in listed.pages if isinstance(listed, SegmentList) else ():
                    page = paths.segment_page(path, *ref.name)
                    yield await _read(store, page, partial(_page, ref))
    async for path, node in _look_at_ledgers(store, root):
        yield path, node


async def _look_at_ledgers(
    store: MetadataStore, root: str
) -> AsyncIterator[tuple[str, object | Exception]]:
    tree = ReplicationTree(store, _ME, root)
    for ledger_id in (await tree.marked_ledgers())[:_LEDGERS_MAX]:
        yield await _read(store, paths.under_replicated_ledger(ledger_id, root), decode_mark)
    batch: list[str] = []
    count = 0
    async for ledger_id in LedgerNodes(store, root, attempts_max=1, retry_delay_s=0.0).ids():
        count += 1
        batch.append(paths.ledger(ledger_id, root))
        if len(batch) == _READ_AT_ONCE or count == _LEDGERS_MAX:
            for found in await _read_ledgers(store, batch):
                yield found
            batch = []
        if count == _LEDGERS_MAX:
            return
    for found in await _read_ledgers(store, batch):
        yield found


async def _read_ledgers(
    store: MetadataStore, batch: Sequence[str]
) -> list[tuple[str, object | Exception]]:
    nodes = await store.get_many(batch) if batch else []
    return [
        (path, None if node is None else _decoded(node.data, metadata_codec.decode))
        for path, node in zip(batch, nodes, strict=True)
    ]


async def _read(
    store: MetadataStore, path: str, decode: Callable[[bytes], Any]
) -> tuple[str, object | Exception]:
    try:
        node = await store.get(path)
    except NoNode:
        return path, None
    return path, _decoded(node.data, decode)


def _decoded(data: bytes, decode: Callable[[bytes], object]) -> object | Exception:
    try:
        return decode(data)
    except (QuireError, ValueError) as error:
        return error


def _page(ref: PageRef, data: bytes) -> Page:
    return decode_page(data, ref)


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []


def _tombstone(name: str, data: bytes) -> object:
    check_name(data.decode())
    return UUID(name)


def _bookie(name: str, data: bytes) -> object:
    return parse_service_info(BookieId(name), data)

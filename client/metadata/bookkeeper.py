"""The roots of both trees in ZooKeeper: made once per cluster, by whoever comes first.

Covers BookKeeper's `LAYOUT` text and how a fresh ZooKeeper becomes a cluster, BookKeeper's (what
`bookkeeper shell initnewcluster` writes) and Quire's. Everything below these roots is created on
demand by whoever needs it.

Both functions are idempotent: they complete a half-made tree, change nothing in a complete one,
and may be called again after a ConnectionLoss.

Source: Apache BookKeeper 4.17, ZKRegistrationManager.initNewCluster and LedgerLayout.
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from typing import Final

from client.errors import MetadataCorrupt, NodeExists
from client.ids import Rng
from client.metadata import paths
from client.metadata.store import Create, MetadataStore

LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
"""Layout format 2, then the ledger manager and its version; two lines, no newline at the end."""


async def init_bookkeeper(store: MetadataStore, *, rng: Rng, root: str = paths.LEDGERS_ROOT) -> str:
    """Make BookKeeper's tree if it is not there; return the cluster's instance id.

    Raises MetadataCorrupt when the tree belongs to another ledger manager.
    """
    wanted = [
        (root, b""),
        (paths.available(root), b""),
        (paths.readonly(root), b""),
        (paths.instance_id(root), str(_new_uuid(rng)).encode()),
        (paths.layout(root), LAYOUT),
    ]
    await _make(store, wanted)
    await check_layout(store, root=root)
    return await read_instance_id(store, root=root)


async def init_quire(store: MetadataStore, *, rng: Rng) -> str:
    """Make Quire's tree if it is not there; return the cluster id that Kafka clients see.

    A cluster id is 22 characters of URL-safe base64, as Kafka's are.
    """
    new_id = base64.urlsafe_b64encode(_new_uuid(rng).bytes).rstrip(b"=")
    wanted = [
        (paths.QUIRE_ROOT, b""),
        (paths.CLUSTER_ID, new_id),
        (paths.BROKERS, b""),
        (paths.TOPICS, b""),
        (paths.PARTITIONS, b""),
    ]
    await _make(store, wanted)
    return (await store.get(paths.CLUSTER_ID)).data.decode("ascii")


async def check_layout(store: MetadataStore, *, root: str = paths.LEDGERS_ROOT) -> None:
    """Raise MetadataCorrupt unless `LAYOUT` is the one we understand, NoNode if there is none."""
    found = (await store.get(paths.layout(root))).data
    if found != LAYOUT:
        raise MetadataCorrupt(
            f"{paths.layout(root)} is {found!r}: a ledger manager that Quire does not know"
        )


async def read_instance_id(store: MetadataStore, *, root: str = paths.LEDGERS_ROOT) -> str:
    """Return the cluster's instance id, which every bookie keeps in its cookie.

    Raises NoNode, MetadataCorrupt.
    """
    found = (await store.get(paths.instance_id(root))).data
    if not found.isascii():
        raise MetadataCorrupt(f"{paths.instance_id(root)} is {found[:80]!r}")
    return found.decode("ascii")


async def _make(store: MetadataStore, nodes: list[tuple[str, bytes]]) -> None:
    """Create all nodes in one transaction; complete them one by one if some are there already."""
    root = nodes[0][0]
    if await store.exists(root) is None:
        parent = root.rpartition("/")[0]
        if parent:
            with contextlib.suppress(NodeExists):
                await store.create(parent, make_parents=True)
        try:
            await store.multi([Create(path, data) for path, data in nodes])
        except NodeExists:
            pass  # somebody else was faster: make sure that all of it is there
        else:
            return
    for path, data in nodes:
        if await store.exists(path) is None:
            with contextlib.suppress(NodeExists):
                await store.create(path, data)


def _new_uuid(rng: Rng) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)

"""Checks of ZooKeeper: whether it answers, has a quorum, takes writes, and holds our trees."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from pathlib import Path
from typing import Final

from bookie.config import BookieConfig
from bookie.membership.cookie import FILE_NAME, Cookie, decode_cookie
from client.errors import ConfigError, MetadataCorrupt, MetadataError, NoNode
from client.ids import BookieId
from client.metadata import paths
from client.metadata.bookkeeper import check_layout, read_instance_id
from client.metadata.store import MetadataStore
from client.metadata.zookeeper import ZooKeeperStore, may_write_alone
from ops.doctor.findings import Finding, fine, trouble, warning

_TIMEOUT_S: Final = 3.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_NO_QUORUM: Final = "not currently serving requests"
_FORBIDDEN: Final = "not in the whitelist"


async def ask_server(host: str, port: int, context: ssl.SSLContext | None = None) -> str | None:
    """Return what a server says of itself (`srvr`); None: it is unreachable. `context`: of TLS."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(b"srvr")
                return (await reader.read(_ANSWER_BYTES_MAX)).decode("utf-8", "replace")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None


def check_server(server: str, answer: str | None) -> Finding:
    """One server of the ensemble, by its answer."""
    if answer is None:
        return trouble(
            "zookeeper",
            f"ZooKeeper {server} does not answer",
            "Start it, or correct the address (--zookeeper HOST:PORT[,...]).",
        )
    if _NO_QUORUM in answer:
        return trouble(
            "zookeeper",
            f"ZooKeeper {server} has no quorum",
            "Start a majority of its servers, and let them reach each other (ports 2888, 3888).",
        )
    mode = re.search(r"^Mode: (.+)$", answer, re.MULTILINE)
    if mode is None:
        advice = "Allow it to say how it is: 4lw.commands.whitelist=srvr in zoo.cfg."
        shown = "does not tell its state" if _FORBIDDEN in answer else "says nothing of its state"
        return warning("zookeeper", f"ZooKeeper {server} {shown}", advice)
    if mode[1].strip() == "read-only":
        return trouble(
            "zookeeper",
            f"ZooKeeper {server} is read-only: it lost its majority",
            "Bring the other servers back; nothing can be created until then.",
        )
    return fine("zookeeper", f"ZooKeeper {server} is {mode[1].strip()}")


async def check_trees(store: MetadataStore, ledgers_root: str) -> list[Finding]:
    """Both trees must have been made before any node starts. Raises MetadataError."""
    advice = (
        "Run `quire metadata init` once, before the first node starts; check the chroot"
        " (HOST:PORT/PATH) and ledgers_root if there should be a cluster."
    )
    found = []
    try:
        await check_layout(store, root=ledgers_root)
        found.append(fine("metadata", f"{ledgers_root} holds BookKeeper's tree"))
    except NoNode:
        found.append(trouble("metadata", f"there is no BookKeeper tree at {ledgers_root}", advice))
    except MetadataCorrupt as error:
        found.append(
            trouble("metadata", str(error), "Another ledger manager made this tree: use its root.")
        )
    if await store.exists(paths.CLUSTER_ID) is None:
        found.append(trouble("metadata", f"there is no Quire tree at {paths.QUIRE_ROOT}", advice))
    else:
        found.append(fine("metadata", f"{paths.QUIRE_ROOT} holds Quire's tree"))
    return found


async def check_protected(store: ZooKeeperStore, ledgers_root: str) -> Finding:
    """Who reaches ZooKeeper must not be able to change the cluster. Raises MetadataError."""
    open_ones = []
    for path in (ledgers_root, paths.QUIRE_ROOT):
        with contextlib.suppress(NoNode):
            if not await may_write_alone(store, path):
                open_ones.append(path)
    if not open_ones:
        return fine("metadata", "the trees belong to the cluster's ZooKeeper user")
    return warning(
        "metadata",
        f"everybody who reaches ZooKeeper may change {' and '.join(open_ones)}",
        "On a network of others set cluster_security.zookeeper_user on all nodes, then run"
        " `quire metadata protect`.",
    )


async def check_cookie(store: MetadataStore, config: BookieConfig) -> list[Finding]:
    """What the data directories and the cluster say of this bookie must agree."""
    bookie_id = BookieId(config.bookie_id or f"{config.client_host()}:{config.port}")
    local = {directory: _local(directory) for directory in config.data_dirs()}
    known = await _known(store, bookie_id, config.ledgers_root)
    damaged = [
        f"{path}: {error}" for path, error in local.items() if isinstance(error, ConfigError)
    ]
    if damaged:
        return [trouble("cookie", "; ".join(damaged), "Restore the file from another directory.")]
    cookies = {path: each for path, each in local.items() if isinstance(each, Cookie)}
    if not cookies:
        if known is None:
            return [fine("cookie", f"bookie {bookie_id} is new to the cluster")]
        return [
            trouble(
                "cookie",
                f"the cluster knows bookie {bookie_id}, but its directories are empty",
                "Is the disk mounted? If it is lost for good: `quire bookie decommission"
                f" {bookie_id}`, then start a bookie with another id.",
            )
        ]
    other = next((each for each in cookies.values() if each.bookie_id != bookie_id), None)
    if other is not None:
        return [
            trouble(
                "cookie",
                f"the data is that of bookie {other.bookie_id}, the settings say {bookie_id}",
                "Keep bookie_id, advertised_host and port for the life of a directory.",
            )
        ]
    instance_id = await _instance_id(store, config.ledgers_root)
    if any(each.instance_id != instance_id for each in cookies.values()):
        return [
            trouble(
                "cookie",
                "the data is that of another cluster (instance id differs)",
                "Point --zookeeper and ledgers_root to that cluster, or use empty directories.",
            )
        ]
    if known is None:
        return [
            trouble(
                "cookie",
                f"the cluster forgot bookie {bookie_id}, which has data",
                "It was decommissioned, or metadata was lost: restore the backup, or start it with"
                " empty directories and another id.",
            )
        ]
    return [fine("cookie", f"bookie {bookie_id} and the cluster know each other")]


def _local(directory: Path) -> Cookie | ConfigError | None:
    path = directory / FILE_NAME
    try:
        return decode_cookie(path.read_bytes(), str(path))
    except ConfigError as error:
        return error
    except OSError:
        return None


async def _known(store: MetadataStore, bookie_id: BookieId, root: str) -> Cookie | None:
    path = paths.cookie(bookie_id, root)
    try:
        return decode_cookie((await store.get(path)).data, path)
    except (NoNode, ConfigError):
        return None


async def _instance_id(store: MetadataStore, root: str) -> str | None:
    try:
        return await read_instance_id(store, root=root)
    except MetadataError:
        return None

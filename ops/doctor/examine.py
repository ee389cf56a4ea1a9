"""Gathers the facts for `quire doctor` and puts the checks in order.

Nothing here changes anything, but for a file of 80 KiB that measures the disk and is gone at once.
"""

from __future__ import annotations

import resource
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from broker.front.endpoints import listeners_of
from client.errors import MetadataError, QuireError
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from ops import ports
from ops.admin_api import AdminApi
from ops.doctor import cluster, disk, machine, metadata, nodes, outside, spark
from ops.doctor.findings import Finding, trouble, warning
from ops.java import Java, find_java
from ops.zookeeper_jars import find_jars

_NODE_TIMEOUT_S: Final = 3.0
_STORE_TIMEOUT_MS: Final = 5_000


def examine_machine(broker: BrokerConfig | None, bookie: BookieConfig | None) -> Iterator[Finding]:
    """Check this machine for the nodes with these settings."""
    yield machine.check_java(_find_java_and_jars)
    yield from spark.check_spark(spark.look())
    yield machine.check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if broker is not None:
        for listener in listeners_of(broker):
            what = f"listener {listener.name} of the broker"
            yield _port(listener.bind.port, what if broker.security.listeners else "the broker")
        if broker.admin_port > 0:
            yield _port(broker.admin_port, "the broker's admin server")
        yield from machine.check_advertised(broker, _resolve, _is_own)
        yield machine.check_session("broker", broker.session_timeout_ms)
    if bookie is not None:
        yield _port(bookie.port, "the bookie")
        if bookie.admin_port:
            yield _port(bookie.admin_port, "the bookie's admin server")
        yield machine.check_session("bookie", bookie.session_timeout_ms)
        for directory in bookie.data_dirs():
            yield from _directory(directory.absolute(), bookie)


def _find_java_and_jars() -> Java:
    """Return the Java that would run a ZooKeeper server. Raises JavaMissing, JarsMissing."""
    java = find_java()
    find_jars()
    return java


def _port(port: int, purpose: str) -> Finding:
    is_free = ports.is_free(port) if port else True
    return machine.check_port(
        port, purpose, is_free=is_free, owner=None if is_free else ports.listener(port)
    )


def _resolve(host: str) -> set[str]:
    return {str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


def _is_own(address: str) -> bool:
    """Whether one can listen on an address, which is how a machine knows its own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _directory(path: Path, config: BookieConfig) -> Iterator[Finding]:
    there = next(each for each in (path, *path.parents) if each.exists())
    usage = shutil.disk_usage(there)
    yield disk.check_space(
        path,
        total=usage.total,
        free=usage.free,
        free_min=config.free_bytes_min,
        full_at=config.disk_usage_threshold,
        warn_at=config.disk_usage_warn_threshold,
    )
    yield disk.check_file_system(there, disk.read_mounts())
    try:
        yield disk.check_syncs(path, disk.measure_syncs(there))
    except OSError as error:
        yield trouble(
            "disk-sync",
            f"cannot write to {there}: {error.strerror}",
            "Give the bookie's user the directory, on a disk that can be written.",
        )


async def examine_zookeeper(
    hosts: str,
    ledgers_root: str,
    bookie: BookieConfig | None,
    security: ClusterSecurity = OPEN_CLUSTER,
) -> AsyncIterator[Finding]:
    """Check each server of the ensemble, then the trees in it."""
    context = security.contexts().get() if security.zookeeper_tls else None
    servers, _, _ = hosts.partition("/")
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        answer = await metadata.ask_server(host, int(port), context) if port.isdigit() else None
        yield metadata.check_server(server, answer)
    try:
        store = ZooKeeperStore(hosts, start_timeout_ms=_STORE_TIMEOUT_MS, security=security)
        await store.start()
    except QuireError as error:
        yield trouble("metadata", str(error), "Nothing else can be said without ZooKeeper.")
        return
    try:
        for finding in await metadata.check_trees(store, ledgers_root):
            yield finding
        yield await metadata.check_protected(store, ledgers_root)
        for finding in await nodes.check_nodes(store, ledgers_root):
            yield finding
        if bookie is not None:
            for finding in await metadata.check_cookie(store, bookie):
                yield finding
    except MetadataError as error:
        yield trouble("metadata", f"ZooKeeper went away: {error}", "Run this again.")
    finally:
        await store.close()


async def examine_cluster(
    api: AdminApi, context: ssl.SSLContext | None = None
) -> AsyncIterator[Finding]:
    """Check the running nodes. `context`: of clients that speak TLS with brokers; None: what
    this machine trusts."""
    try:
        brokers = await api.list("/brokers")
        bookies = await api.list("/bookies")
        topics = await api.list("/topics", internal=True)
        hanging = await api.list("/transactions", open_seconds=cluster.TRANSACTION_S_MAX)
    except QuireError as error:
        yield warning("brokers", str(error), "Start the cluster, or say where it is (--admin).")
        return
    for finding in cluster.check_brokers(brokers):
        yield finding
    for row in brokers:
        looks = await _look_at(row, context)
        for finding in outside.check_listeners(row, looks, has_settings=context is not None):
            yield finding
    for finding in cluster.check_bookies(bookies, topics):
        yield finding
    for finding in cluster.check_transactions(hanging):
        yield finding
    urls = {f"broker {row['broker_id']}": row["admin_url"] for row in brokers}
    urls |= {f"bookie {row['bookie_id']}": row["admin_url"] for row in bookies}
    versions: dict[str, str] = {}
    skews: dict[str, float] = {}
    for node, url in urls.items():
        if url is not None:
            await _ask_node(api, node, url, versions, skews)
    yield cluster.check_versions(versions)
    yield cluster.check_clocks(skews)


async def _look_at(
    broker: Mapping[str, Any], context: ssl.SSLContext | None
) -> dict[str, outside.Look]:
    """Return what is seen at each listener of a broker, by its name."""
    trusting = context or ssl.create_default_context()
    return {
        one["name"]: await outside.look(
            one["host"], one["port"], trusting if outside.is_tls(one) else None
        )
        for one in outside.listeners_of(broker)
    }


async def _ask_node(
    api: AdminApi,
    node: str,
    url: str,
    versions: dict[str, str],
    skews: dict[str, float],
) -> None:
    """Note a node's version and clock; a node that this machine cannot ask is left out."""
    try:
        text, date = await api.metrics_of(url)
    except (aiohttp.ClientError, OSError, TimeoutError):
        return
    version = version_in(text)
    if version is not None:
        versions[node] = version
    if date is not None:
        told = parsedate_to_datetime(date)
        # Its seconds were cut off: on average half a second is missing.
        skews[node] = (told - datetime.fromtimestamp(time.time(), UTC)).total_seconds() + 0.5


def version_in(exposition: str) -> str | None:
    """Return the version that a node's metrics name; None: they do not, or cannot be read."""
    families: Any = text_string_to_metric_families(exposition)
    try:
        for family in families:
            if family.name == "quire_info":
                return next((str(row.labels["version"]) for row in family.samples), None)
    except (ValueError, KeyError):
        return None
    return None

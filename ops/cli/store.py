"""How commands reach a cluster through its ZooKeeper servers: the option, and the sentence when
nobody answers."""

from __future__ import annotations

import functools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from client.errors import AuthFailed, MetadataError, NoNode, QuireError
from client.ledger.client import LedgerClient
from client.ledger.standalone import WallClock
from client.metadata.store import MetadataStore
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity, read_cluster_security
from ops.cli.addresses import asked_option, resolve

Command = TypeVar("Command", bound=Callable[..., Any])

ZOOKEEPER = "localhost:2181"
_START_TIMEOUT_MS = 5_000
_SECURITY = "quire.cluster_security"

_option = click.option(
    "--zookeeper",
    "hosts",
    metavar="HOST:PORT[,...]",
    envvar="QUIRE_ZOOKEEPER",
    default=None,
    show_envvar=True,
    help=f"Where the ZooKeeper servers are.  [default: what brokers tell, else {ZOOKEEPER}]",
)


def _note_config(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[_SECURITY] = path


_config_option = click.option(
    "--cluster-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="QUIRE_CLUSTER_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=_note_config,
    help="TOML file with the table [cluster_security], as brokers and bookies have it: how bookies"
    " and ZooKeeper are reached.",
)


def cluster_security() -> ClusterSecurity:
    """Return how the command was told to reach bookies and ZooKeeper. Raises ConfigError."""
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(_SECURITY)
    return read_cluster_security(path) if isinstance(path, Path) else OPEN_CLUSTER


def zookeeper_option(command: Command) -> Command:
    """Add the options that say where ZooKeeper is to a command, which gets it as `hosts`."""

    @functools.wraps(command)
    def with_hosts(*args: Any, hosts: str | None, **rest: Any) -> Any:
        found = resolve("hosts", hosts, ZOOKEEPER)
        if found.told_by is not None:
            cluster_security().check_told(found.value, "--zookeeper HOST:PORT")
        return command(*args, hosts=found.value, **rest)

    decorated: Any = with_hosts
    return asked_option(_option(_config_option(decorated)))  # type: ignore[no-any-return]  # the same, with options


@asynccontextmanager
async def open_store(hosts: str) -> AsyncIterator[MetadataStore]:
    """Give access to a cluster's metadata. Raises QuireError, which says what to do."""
    security = cluster_security()
    store = ZooKeeperStore(hosts, start_timeout_ms=_START_TIMEOUT_MS, security=security)
    try:
        try:
            await store.start()
        except AuthFailed:
            raise  # it says what to set
        except MetadataError as error:
            raise QuireError(
                f"{error}. Start a cluster with `quire up`, or give an address with "
                "--bootstrap-server HOST:PORT or --zookeeper HOST:PORT"
            ) from error
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_ledgers(store: MetadataStore) -> AsyncIterator[LedgerClient]:
    """Give access to a cluster's ledgers. Raises QuireError when there is no cluster."""
    client = LedgerClient(
        store, rng=random.SystemRandom(), clock=WallClock(), bookies=cluster_security()
    )
    try:
        await client.start()
    except NoNode as error:
        raise QuireError(
            "there is no cluster in this ZooKeeper: start one with `quire up`"
        ) from error
    try:
        yield client
    finally:
        await client.close()

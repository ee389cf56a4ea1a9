"""`quire metadata`: make, back up and restore what a cluster keeps in ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import click

from client.errors import NodeExists, QuireError
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, init_quire
from client.metadata.zookeeper import ZooKeeperStore, protect
from ops.amounts import count
from ops.cli.console import run, say
from ops.cli.store import open_store, zookeeper_option
from ops.metadata_backup import backup as lines_of
from ops.metadata_backup import restore as restore_lines
from ops.secret_files import open_secret

_root_option = click.option(
    "--ledgers-root",
    metavar="PATH",
    default=paths.LEDGERS_ROOT,
    show_default=True,
    help="Root of BookKeeper's tree.",
)


@click.group()
def metadata() -> None:
    """Create, back up and restore what a cluster keeps in ZooKeeper.

    \b
    Examples:
      quire metadata init
      quire metadata backup cluster.backup
    """


async def _make_chroot(hosts: str) -> None:
    """Create the path that `hosts` ends in, if any: ZooKeeper expects it to be there."""
    servers, slash, path = hosts.partition("/")
    if slash and path:
        async with open_store(servers) as store:
            with contextlib.suppress(NodeExists):
                await store.create(f"/{path}", make_parents=True)


@metadata.command()
@_root_option
@zookeeper_option
def init(ledgers_root: str, hosts: str) -> None:
    """Create the trees of a new cluster: once, before its first node starts.

    Harmless to repeat: what exists stays.

    \b
    Example:
      quire metadata init
    """

    async def work() -> None:
        rng = random.SystemRandom()
        await _make_chroot(hosts)
        async with open_store(hosts) as store:
            instance_id = await init_bookkeeper(store, rng=rng, root=ledgers_root)
            cluster_id = await init_quire(store, rng=rng)
        print(f"Cluster {cluster_id} is ready for nodes (bookies' instance id {instance_id}).")

    run(work())


@metadata.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_root_option
@zookeeper_option
def backup(file: Path, ledgers_root: str, hosts: str) -> None:
    """Write all metadata of the cluster to FILE; an older one is replaced when it is complete.

    FILE holds the password of every ledger and the hashes of all users' passwords: only its owner
    can read it.

    \b
    Example:
      quire metadata backup cluster.backup
    """
    scratch = file.with_name(f"{file.name}.new")

    async def work() -> None:
        written = 0
        async with open_store(hosts) as store:
            try:
                with open_secret(scratch, encoding="ascii") as out:
                    roots = (ledgers_root, paths.QUIRE_ROOT)
                    now_ms = time.time_ns() // 1_000_000
                    async for line in lines_of(store, now_ms=now_ms, roots=roots):
                        out.write(f"{line}\n")
                        written += 1
                    out.flush()
                    os.fsync(out.fileno())
                scratch.replace(file)
            except OSError as error:
                raise QuireError(f"cannot write {file}: {error.strerror}") from error
            finally:
                scratch.unlink(missing_ok=True)
        say(f"{count(written - 1, 'node')} of metadata are in {file}.")

    run(work())


@metadata.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@zookeeper_option
def restore(file: Path, hosts: str) -> None:
    """Create what FILE holds, in a ZooKeeper without a cluster, before any node starts.

    \b
    Example:
      quire metadata restore cluster.backup
    """

    async def work() -> None:
        await _make_chroot(hosts)
        async with open_store(hosts) as store:
            with file.open(encoding="ascii") as lines:
                created = await restore_lines(store, lines)
        say(f"{count(created, 'node')} of metadata are there now.")

    run(work())


@metadata.command(name="protect")
@_root_option
@zookeeper_option
def protect_command(ledgers_root: str, hosts: str) -> None:
    """Give all nodes of the cluster to its ZooKeeper user, and take them from everybody else.

    For a cluster that had no user before, or another zookeeper_scheme. --cluster-config names the
    user; all programs of the cluster must have it already, or they stop working. If this is
    interrupted, repeat it: what was done so far stays.

    \b
    Example:
      quire metadata protect --cluster-config cluster.toml
    """

    async def work() -> None:
        async with open_store(hosts) as store:
            assert isinstance(store, ZooKeeperStore), "there is no other store behind addresses"
            done = 0
            for root in (ledgers_root, paths.QUIRE_ROOT):
                done += await protect(store, root)
        say(f"{count(done, 'node')} are the user's alone.")

    run(work())

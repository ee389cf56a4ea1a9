"""`quire bookie decommission`, `recover`: remove bookies for good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import click

from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.decommission import Decommission
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.tree import ReplicationTree
from client.errors import QuireError
from client.ids import BookieId
from client.metadata import paths
from ops.amounts import count
from ops.cli.console import json_option, print_json, run, say
from ops.cli.store import open_ledgers, open_store, zookeeper_option

_ME = BookieId("quire-cli")
_POLL_S = 2.0


class _Work(NamedTuple):
    departure: Decommission
    replicator: FragmentReplicator


@asynccontextmanager
async def _departure(hosts: str, bookie_id: str) -> AsyncIterator[_Work]:
    root = paths.LEDGERS_ROOT
    async with open_store(hosts) as store, open_ledgers(store) as client:
        tree = ReplicationTree(store, _ME, root)
        departure = Decommission(store, tree, client, BookieId(bookie_id), root)
        yield _Work(
            departure, FragmentReplicator(client, batch_entries=AutoRecoveryConfig().batch_entries)
        )


@click.command()
@click.argument("bookie_id", metavar="ID")
@json_option
@zookeeper_option
def decommission(bookie_id: str, as_json: bool, hosts: str) -> None:
    """Wait until auto recovery has copied all that the bookie ID held, then unregister its id.

    Stop the bookie first. Interrupting is safe; the same command goes on later. Its id must not
    be used again.

    \b
    Example:
      quire bookie decommission 10.0.0.7:3181
    """
    told: list[int] = []

    def on_waiting(left: int) -> None:
        if told[-1:] != [left]:
            say(f"{count(left, 'ledger')} still on bookie {bookie_id}.")
            told.append(left)

    async def work() -> None:
        async with _departure(hosts, bookie_id) as (departure, _):
            await departure.decommission(_POLL_S, on_waiting)
        if as_json:
            print_json({"bookie": bookie_id, "decommissioned": True})
        say(f"Bookie {bookie_id} is needed by no ledger any more, and is removed from the cluster.")

    run(work())


@click.command()
@click.argument("bookie_id", metavar="ID")
@json_option
@zookeeper_option
def recover(bookie_id: str, as_json: bool, hosts: str) -> None:
    """Copy all that the stopped bookie ID held, here and now, without auto recovery.

    Open ledgers with copies on it are closed, so their writers have to start new ones.

    \b
    Example:
      quire bookie recover 10.0.0.7:3181
    """

    async def work() -> None:
        async with _departure(hosts, bookie_id) as (departure, replicator):
            repaired, lacking = await departure.recover(replicator)
        if as_json:
            print_json({"bookie": bookie_id, "repaired": list(repaired), "lacking": list(lacking)})
        say(f"{count(len(repaired), 'ledger')} at full replication again.")
        if lacking:
            listed = ", ".join(map(str, lacking))
            raise QuireError(f"{count(len(lacking), 'ledger')} could not be repaired: {listed}")

    run(work())

"""`quire autorecovery`: see and control the repair of ledgers that lack copies."""

from __future__ import annotations

import click

from client.autorecovery.switches import Switches
from client.autorecovery.tree import ReplicationTree
from client.ids import BookieId
from client.ledger.under_replication import read_mark
from client.metadata import paths
from client.metadata.store import MetadataStore
from ops.cli.console import json_option, print_json, print_table, run, say
from ops.cli.store import open_store, zookeeper_option

_ME = BookieId("quire-cli")


@click.group()
def autorecovery() -> None:
    """See and control the re-replication of ledgers that lack copies.

    An elected auditor marks the ledgers of lost bookies; workers copy what is missing. They run
    in bookies (--auto-recovery) or alone (python -m ops.autorecovery).

    \b
    Example:
      quire autorecovery status
    """


@autorecovery.command()
@json_option
@zookeeper_option
def status(as_json: bool, hosts: str) -> None:
    """Show whether it is on, who is auditor, and which ledgers lack copies.

    \b
    Example:
      quire autorecovery status
    """

    async def work() -> None:
        async with open_store(hosts) as store:
            found = await _status(store)
        if as_json:
            print_json(found)
            return
        marked = found["ledgers"]
        assert isinstance(marked, list)
        delay = found["lost_bookie_delay_s"]
        say(f"Auto recovery is {'on' if found['enabled'] else 'off'}.")
        say(f"Auditor: {found['auditor'] or 'none was elected yet'}.")
        say(f"Lost-bookie delay: {'not set' if delay is None else f'{delay:g} s'}.")
        if marked:
            rows = [[m["ledger"], ", ".join(m["lacking"]), m["worker"]] for m in marked]
            print_table(["LEDGER", "COPIES MISSING ON", "WORKER"], rows)
        else:
            say("No ledger is known to lack copies.")

    run(work())


async def _status(store: MetadataStore) -> dict[str, object]:
    tree = ReplicationTree(store, _ME, paths.LEDGERS_ROOT)
    locks = await tree.locked_ledgers()
    marked = []
    for ledger_id in sorted(await tree.marked_ledgers()):
        mark = await read_mark(store, ledger_id)
        if mark is not None:
            worker = locks.get(ledger_id)
            marked.append({"ledger": ledger_id, "lacking": list(mark.bookies), "worker": worker})
    delay = await tree.switches.delay()
    return {
        "enabled": not await tree.switches.is_disabled(),
        "auditor": await tree.auditor(),
        "lost_bookie_delay_s": None if delay is None else delay.seconds,
        "ledgers": marked,
    }


@autorecovery.command()
@json_option
@zookeeper_option
def enable(as_json: bool, hosts: str) -> None:
    """Switch it on again, in the whole cluster.

    \b
    Example:
      quire autorecovery enable
    """

    async def work() -> None:
        async with open_store(hosts) as store:
            await Switches(store, paths.LEDGERS_ROOT).enable()
        if as_json:
            print_json({"enabled": True})
            return
        say("Auto recovery is on.")

    run(work())


@autorecovery.command()
@json_option
@zookeeper_option
def disable(as_json: bool, hosts: str) -> None:
    """Switch it off in the whole cluster, for planned work on bookies.

    \b
    Example:
      quire autorecovery disable
    """

    async def work() -> None:
        async with open_store(hosts) as store:
            await Switches(store, paths.LEDGERS_ROOT).disable()
        if as_json:
            print_json({"enabled": False})
            return
        say("Auto recovery is off: nothing is copied until `quire autorecovery enable`.")

    run(work())


@autorecovery.command()
@json_option
@zookeeper_option
def trigger(as_json: bool, hosts: str) -> None:
    """Have the auditor look for lost bookies now, whatever their delay.

    \b
    Example:
      quire autorecovery trigger
    """

    async def work() -> None:
        async with open_store(hosts) as store:
            await Switches(store, paths.LEDGERS_ROOT).trigger()
        if as_json:
            print_json({"asked": True})
            return
        say("The auditor was asked to look for lost bookies.")

    run(work())

"""`quire doctor`: finds the usual mistakes and says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from client.config import load
from client.metadata import paths
from ops import ports
from ops.admin_api import ADMIN_URL, Access, AdminApi
from ops.amounts import count
from ops.cli.addresses import client_security
from ops.cli.admin import admin_options, with_api
from ops.cli.console import EXIT_FAILED, json_option, print_json, say
from ops.cli.store import ZOOKEEPER, cluster_security, zookeeper_option
from ops.doctor.examine import examine_cluster, examine_machine, examine_zookeeper
from ops.doctor.findings import Finding, Level, fine

_SIGNS = {Level.FINE: "ok", Level.WARNING: "WARNING", Level.TROUBLE: "TROUBLE"}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--broker-config",
    type=_FILE,
    metavar="FILE",
    help="Also check this machine for the broker with these settings.",
)
@click.option(
    "--bookie-config",
    type=_FILE,
    metavar="FILE",
    help="Also check this machine, and its disks, for the bookie with these settings.",
)
@click.option("--all", "show_all", is_flag=True, help="Also show what is fine.")
@json_option
@zookeeper_option
@admin_options
def doctor(
    broker_config: Path | None,
    bookie_config: Path | None,
    show_all: bool,
    as_json: bool,
    hosts: str,
    access: Access,
) -> None:
    """Find the usual mistakes: on this machine, in ZooKeeper and in the cluster.

    Changes nothing. The exit code is 1 if something does not, or will not, work; warnings alone
    leave it 0. With settings files, ZooKeeper is looked for at the addresses in them.

    \b
    Examples:
      quire doctor
      quire doctor --all
    """
    broker = None
    if broker_config is not None:
        broker = load(BrokerConfig, toml_path=broker_config, env_prefix="QUIRE_BROKER_")
    bookie = None
    if bookie_config is not None:
        bookie = load(BookieConfig, toml_path=bookie_config, env_prefix="QUIRE_BOOKIE_")
    root = paths.LEDGERS_ROOT
    if broker is not None:
        hosts, root = ",".join(broker.zookeeper), broker.ledger.ledgers_root
    if bookie is not None:
        hosts, root = ",".join(bookie.zookeeper), bookie.ledgers_root
    security = cluster_security()
    for settings in (broker, bookie):
        security = security if settings is None else settings.cluster_security
    kafka = client_security(click.get_current_context())
    context = kafka.context() if kafka.is_tls else None
    found = list(examine_machine(broker, bookie))

    if broker is None and bookie is None and _nothing_named(hosts, access):
        found.append(fine("cluster", "no cluster named, and none runs here: nothing to look at"))
        _show(found, as_json=as_json, show_all=show_all)
        say("For a cluster elsewhere: -b HOST:PORT. To start one here: `quire up`.")
        sys.exit(EXIT_FAILED if any(one.level is Level.TROUBLE for one in found) else 0)

    async def work(api: AdminApi) -> None:
        found.extend([one async for one in examine_zookeeper(hosts, root, bookie, security)])
        found.extend([one async for one in examine_cluster(api, context)])

    with_api(access._replace(patience_s=0), work)
    _show(found, as_json=as_json, show_all=show_all)
    if any(one.level is Level.TROUBLE for one in found):
        sys.exit(EXIT_FAILED)


def _nothing_named(hosts: str, access: Access) -> bool:
    """Say whether the addresses are those of a local cluster, for want of others, and there is
    none: a machine on which nothing was started yet is not in trouble."""
    context = click.get_current_context()
    is_given = any(
        context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)
        for name in ("hosts", "admin_urls")
    )
    defaults = (ZOOKEEPER, (ADMIN_URL,))
    if is_given or (hosts, access.urls) != defaults:
        return False
    return all(ports.is_free(int(url.rpartition(":")[2])) for url in (ZOOKEEPER, ADMIN_URL))


def _show(found: list[Finding], *, as_json: bool, show_all: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "check": one.check,
                    "level": one.level.value,
                    "what": one.what,
                    "advice": one.advice,
                }
                for one in found
            ]
        )
        return
    for one in found:
        if show_all or one.level is not Level.FINE:
            print(f"{_SIGNS[one.level]:8} {one.check}: {one.what}")
            if one.advice:
                print(f"{'':8} {one.advice}")
    levels = [one.level for one in found]
    say(
        f"{count(len(found), 'finding')}: {levels.count(Level.FINE)} fine,"
        f" {levels.count(Level.WARNING)} to look at, {levels.count(Level.TROUBLE)} to fix."
    )

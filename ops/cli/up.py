"""`quire up`: run a local cluster in the foreground until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.status import Status

from client.config import load
from client.pubsub.addresses import BOOTSTRAP_SERVERS
from ops.cli import console
from ops.cli.options import settings_options
from ops.cli.secured_clients import secured_clients
from ops.local.cluster import LocalCluster, LocalConfig, Programs

PROGRAMS: Final = Programs()
_ENV_PREFIX: Final = "QUIRE_UP_"
_IMPATIENCE_S: Final = 1.0
"""A second signal within this time is the same one, sent to us and to our process group."""


@click.command()
@settings_options(LocalConfig)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON when the cluster is ready."
)
def up(as_json: bool, **flags: str | None) -> None:
    """Run a local cluster in the foreground: ZooKeeper, bookies, brokers.

    Everything listens on 127.0.0.1 and keeps its data and logs in one directory. Ctrl-C stops
    all of it; the data stays, and the next `quire up` continues with it.
    """
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s %(message)s")
    console.run(_serve(load(LocalConfig, env_prefix=_ENV_PREFIX, flags=flags), as_json))


async def _serve(config: LocalConfig, as_json: bool) -> None:
    progress = _Progress()
    cluster = LocalCluster(config, progress, PROGRAMS)
    stop = _stop_on_signals(cluster)
    started = asyncio.create_task(cluster.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([started, stopping], return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            await started
            progress.end()
            if as_json:
                console.print_json(cluster.describe())
            else:
                click.echo(_welcome(config, cluster))
                if cluster.security is not None:
                    click.echo(secured_clients(cluster.security, servers_of(cluster)))
            await stopping
    finally:
        started.cancel()
        stopping.cancel()
        await asyncio.gather(started, stopping, return_exceptions=True)
        await cluster.stop()
        progress.end()
    console.say(f"Stopped. The data is in {config.data}.")


def _stop_on_signals(cluster: LocalCluster) -> asyncio.Event:
    """Return an event that the first signal sets; a later one kills all processes at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    first_s = 0.0

    def on_signal() -> None:
        nonlocal first_s
        if not stop.is_set():
            first_s = loop.time()
            stop.set()
        elif loop.time() - first_s > _IMPATIENCE_S:
            cluster.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a script's background
            loop.add_signal_handler(number, on_signal)
    return stop


class _Progress:
    """Progress on stderr: a spinner for people, plain lines for files and pipes."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._status: Status | None = None

    def begin(self, what: str) -> None:
        if self._console.is_terminal:
            self.end()
            self._status = self._console.status(f"{what} ...")
            self._status.start()
        else:
            self._line(f"{what} ...")

    def done(self, what: str) -> None:
        self.end()
        self._line(what)

    def warn(self, text: str, lines: Sequence[str] = ()) -> None:
        self._line(f"WARNING: {text}")
        for line in lines:
            self._line(f"    {line}")

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _welcome(config: LocalConfig, cluster: LocalCluster) -> str:
    about = cluster.describe()
    servers = servers_of(cluster)
    quire = _own_command()
    scheme = "https" if config.secure else "http"
    is_default = BOOTSTRAP_SERVERS.endswith(f":{config.kafka_port}")
    where = "" if is_default else f" --bootstrap-server {servers}"
    return f"""
Quire is ready: Kafka clients connect to {servers}

  publish      echo hello | {quire} produce greetings{where}
  subscribe    {quire} consume greetings --from-beginning{where}
  with kcat    echo hello | kcat -P -b {servers} -t greetings
               kcat -C -b {servers} -t greetings
  admin        {scheme}://127.0.0.1:{config.admin_port}
  ZooKeeper    {about["zookeeper"]}
  data, logs   {config.data}

Ctrl-C stops all of it and keeps the data.
"""


def servers_of(cluster: LocalCluster) -> str:
    """Return where Kafka clients connect."""
    return str(cluster.describe()["bootstrap_servers"])


def _own_command() -> str:
    """Return how a person in this directory calls this program."""
    found = shutil.which("quire")
    own = Path(sys.argv[0]).absolute()
    if found is not None and Path(found).absolute() == own:
        return "quire"
    with contextlib.suppress(ValueError):
        return str(own.relative_to(Path.cwd()))
    return str(own)

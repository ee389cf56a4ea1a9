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
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.status import Status

from client.config import load
from client.pubsub.addresses import BOOTSTRAP_SERVERS
from ops.cli import console
from ops.cli.options import settings_options
from ops.local.cluster import LocalCluster, LocalConfig, Programs

if TYPE_CHECKING:
    from ops.local.local_security import LocalSecurity  # needs a package of an extra

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

    The ZooKeeper server is Apache's own, out of PySpark's package: its jars are those of an
    installed PySpark, or 11 MB that `make up`, or `python -m ops.zookeeper_jars`, takes out of that
    package without installing it, after its SHA-256 was compared with the pinned one. It needs a
    Java 17 or newer. With --zookeeper none is started, and neither is needed.
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
                    click.echo(_secured_clients(cluster.security, servers_of(cluster)))
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


def _secured_clients(files: LocalSecurity, servers: str) -> str:
    """Return what clients of a secured cluster are told: settings for each kind, ready to copy.

    Passwords are in the files that the text names.
    """
    return f"""\
Clients log in as user admin, which may do everything. Its password is in these files:

  quire        export QUIRE_CLIENT_CONFIG={files.client_config}
               export QUIRE_ADMIN_CA={files.ca} QUIRE_ADMIN_TOKEN=$(cat {files.admin_token_file})
               quire user create anna; quire acl grant writer --user anna --topic orders
  librdkafka   kcat -F {files.client_config} -b {servers} -L
  Java         kafka-topics.sh --bootstrap-server {servers} --list \\
                   --command-config {files.java_config}
  Python       from client.kafka_security import read_properties
               confluent_kafka.Producer({{"bootstrap.servers": "{servers}",
                   **read_properties(Path("{files.client_config}"))}})
  Spark        spark.readStream.format("quire").option("kafka.bootstrap.servers", "{servers}")
                   .options(**{{f"kafka.{{k}}": v for k, v in
                              read_properties(Path("{files.client_config}")).items()}})

Only the cluster may use ZooKeeper and the bookies; commands that need them find everything with

               export QUIRE_CLUSTER_CONFIG={files.cluster_config}

Admin ports speak TLS and require a token. That of administrators is in the file above; one for
operators, and one for people who only look, are in {files.admin_token_file.with_suffix(".tokens")}
"""

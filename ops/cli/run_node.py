"""`quire broker run`, `quire bookie run`, `quire zookeeper run`: a node in this process.

The command becomes the node (exec), so signals, exit codes and limits are the node's own, and a
unit of systemd or a container may start it. `-P` keeps what lies in the current folder from being
taken for a part of Quire.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from ops.java import find_java
from ops.zookeeper import LOGGING, server_command

_ANY_SETTING = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_run(group: click.Group, program: str) -> None:
    """Give a group the command `run`. `program`: what `python -m` starts."""

    @group.command(name="run", context_settings=_ANY_SETTING)
    @click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="TOML file with settings.",
    )
    @click.argument("settings", nargs=-1, type=click.UNPROCESSED, metavar="[--SETTING VALUE]...")
    def run(config: Path | None, settings: tuple[str, ...]) -> None:
        told = [] if config is None else ["--config", str(config)]
        command = [sys.executable, "-P", "-m", program, *told, *settings]
        os.execv(sys.executable, command)  # noqa: S606  (our own interpreter)

    run.help = f"""Run a {program} in the foreground until Ctrl-C.

    Each setting may also be an option, as --port 9092; the reference of settings has all of them,
    and so has `python -m {program} --help`.

    \b
    Example:
      quire {program} run --config /etc/quire/{program}.toml
    """


@click.group()
def zookeeper() -> None:
    """Run a ZooKeeper server with the jars that `quire up` uses.

    \b
    Example:
      quire zookeeper run zoo.cfg
    """


@zookeeper.command(name="run")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run_zookeeper(config: Path) -> None:
    """Run a ZooKeeper server with the settings CONFIG (a zoo.cfg) in the foreground.

    Needs Java, and the jars: `python -m ops.zookeeper_jars` fetches them.

    \b
    Example:
      quire zookeeper run /etc/quire/zoo.cfg
    """
    logging = Path(tempfile.mkdtemp(prefix="quire-zookeeper-")) / "log4j2.properties"
    logging.write_text(LOGGING)
    java = find_java()
    os.execv(str(java.path), server_command(java, config, logging))  # noqa: S606

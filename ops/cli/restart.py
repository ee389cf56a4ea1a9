"""`quire restart`: a rolling restart of the whole cluster."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
from pathlib import Path

import click

from client.errors import QuireError
from ops.admin_api import Access, AdminApi
from ops.cli.admin import admin_options
from ops.cli.console import json_option, print_json, print_table, run, say
from ops.rolling import CLIENTS_BACK_S, Node, Restart, Restarted, RollingRestart

_POLL_S = 0.02
_NAME = re.compile(r"[A-Za-z0-9_:\[][A-Za-z0-9_.:%\[\]-]*")
"""Hosts, addresses and ids, none of which begins with a dash."""


@click.command()
@click.option(
    "--broker-command",
    metavar="COMMAND",
    help="Stops and starts a broker; {id} and {host} stand for its node id and host, {name} for"
    " the host up to its first dot.",
)
@click.option(
    "--bookie-command",
    metavar="COMMAND",
    help="The same for a bookie; {id} is its bookie id.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead: restart the cluster of `quire up` with this data directory.",
)
@click.option(
    "--only",
    type=click.Choice(["brokers", "bookies"]),
    help="Leave the others alone.",
)
@click.option(
    "--step-timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    help="Stop when a step takes longer; the nodes after it stay as they are.",
)
@click.option(
    "--broker-pause",
    "pause_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=CLIENTS_BACK_S,
    show_default=True,
    help="Pause between two brokers, for clients that wait before they reconnect.",
)
@json_option
@admin_options
def restart(
    broker_command: str | None,
    bookie_command: str | None,
    data: Path | None,
    only: str | None,
    timeout_s: float,
    pause_s: float,
    as_json: bool,
    access: Access,
) -> None:
    """Restart bookies and brokers, one after the other, under load, without losing a record.

    A broker first hands over its partitions. The next node is not touched before all partitions
    have leaders, all bookies are registered and no ledger lacks copies. Nodes of a kind without
    a command are left alone.

    \b
    Examples:
      quire restart --data ./data
      quire restart --only brokers \\
            --broker-command "ssh {host} sudo systemctl restart quire-broker"
    """
    if (data is None) == (broker_command is None and bookie_command is None):
        raise click.UsageError("give either --data, or --broker-command or --bookie-command")
    by_kind: dict[str, Restart] = {}
    for kind, command in (("broker", broker_command), ("bookie", bookie_command)):
        if only in (None, f"{kind}s"):
            if data is not None:
                by_kind[kind] = _Local(data)
            elif command is not None:
                by_kind[kind] = _Command(command, timeout_s)

    async def work() -> None:
        async with AdminApi(access) as api:
            rolling = RollingRestart(api, by_kind, say, timeout_s=timeout_s, clients_back_s=pause_s)
            done = await rolling.run()
        if as_json:
            print_json([_as_json(one) for one in done])
        else:
            columns = ["NODE", "UNLOAD S", "RESTART S", "READY S", "WHOLE S"]
            print_table(columns, [[str(one.node), *map(_seconds, one[1:])] for one in done])

    run(work())


class _Command:
    """The operator's command, without a shell."""

    def __init__(self, template: str, timeout_s: float) -> None:
        try:
            self._words = shlex.split(template)
        except ValueError as error:
            raise click.UsageError(f"{template!r} is not a command: {error}") from error
        self._timeout_s = timeout_s

    async def __call__(self, node: Node) -> None:
        words = [_filled(word, node) for word in self._words]
        shown = shlex.join(words)
        try:
            process = await asyncio.create_subprocess_exec(*words)
            async with asyncio.timeout(self._timeout_s):
                code = await process.wait()
        except TimeoutError:  # before OSError, which it is one of
            process.kill()
            await process.wait()
            raise QuireError(f"`{shown}` did not end within {self._timeout_s:g} s") from None
        except OSError as error:
            raise QuireError(f"cannot run `{shown}`: {error.strerror}") from error
        if code:
            raise QuireError(
                f"`{shown}` failed with exit code {code}; nothing after {node} was touched"
            )


def _filled(word: str, node: Node) -> str:
    """Put what a node calls itself into a word of the command. Raises QuireError if that could be
    taken for something else, such as an option of ssh."""
    name = node.host.partition(".")[0]
    for mark, told in (("{id}", node.id), ("{host}", node.host), ("{name}", name)):
        if mark in word and not _NAME.fullmatch(told):
            raise QuireError(
                f"{node.kind} {node.id!r} calls itself {told!r}, which is no name for a command"
                f" line; nothing from it on was restarted. Find out who registered it"
            )
    return word.replace("{id}", node.id).replace("{host}", node.host).replace("{name}", name)


class _Local:
    """Ends a process of `quire up`, which starts it again."""

    def __init__(self, data: Path) -> None:
        self._state = data / "cluster.json"

    async def __call__(self, node: Node) -> None:
        try:
            nodes = json.loads(self._state.read_text())[f"{node.kind}s"]
        except (OSError, ValueError, KeyError):
            raise QuireError(f"no `quire up` runs on {self._state.parent}") from None
        pids = [each["pid"] for each in nodes if str(each["id"]) == node.id]
        if not pids:
            raise QuireError(f"{node} is not a node of the `quire up` on {self._state.parent}")
        os.kill(pids[0], signal.SIGTERM)
        while _lives(pids[0]):  # noqa: ASYNC110  (not our child: nobody tells us of its end)
            await asyncio.sleep(_POLL_S)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _seconds(value: object) -> str:
    return f"{value:.1f}"


def _as_json(one: Restarted) -> dict[str, object]:
    times = {name: round(value, 3) for name, value in zip(one._fields[1:], one[1:], strict=True)}
    return {"kind": one.node.kind, "id": one.node.id, **times}

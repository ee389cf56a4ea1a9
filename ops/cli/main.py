"""The `quire` command: a table of its subcommands, each loaded only when it is used.

`quire --help` therefore starts fast, whatever the subcommands import. A new subcommand is one
module in this folder and one row in `COMMANDS`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import Final, NamedTuple, cast

import click

from client.errors import QuireError
from ops.cli import console
from ops.cli.addresses import client_config_option, cluster_option, use


class _Row(NamedTuple):
    target: str
    """`module:object`, a click command."""
    help: str


COMMANDS: Final[dict[str, _Row]] = {
    "up": _Row("ops.cli.up:up", "Run a local cluster in the foreground."),
    "cluster": _Row("ops.cli.cluster:cluster", "See the whole cluster, wait until it is healthy."),
    "top": _Row("ops.cli.top:top", "Watch the cluster live."),
    "broker": _Row("ops.cli.broker:broker", "See brokers, take one out of service."),
    "topic": _Row("ops.cli.topic:topic", "Create, list, describe and change topics."),
    "group": _Row("ops.cli.group:group", "See consumer groups, their lag; reset them."),
    "transaction": _Row(
        "ops.cli.transaction:transaction", "See transactions, abort one that hangs."
    ),
    "record": _Row("ops.cli.record:record", "Look at single records, publish one."),
    "produce": _Row("ops.cli.produce:produce", "Publish lines as records of a topic."),
    "consume": _Row("ops.cli.consume:consume", "Print the records of a topic."),
    "user": _Row("ops.cli.user:user", "See, create and remove users, change passwords."),
    "acl": _Row("ops.cli.acl:acl", "See and change who may do what, by roles or entries."),
    "quota": _Row("ops.cli.quota:quota", "See and change quotas."),
    "certificates": _Row(
        "ops.cli.certificates:certificates", "Create and renew certificates for TLS."
    ),
    "schemas": _Row("ops.cli.schemas:schemas", "Run a schema registry on a topic."),
    "ledger": _Row("ops.cli.ledger:ledger", "Look at the ledgers behind topics, and repair them."),
    "bookie": _Row("ops.cli.bookie:bookie", "Look at bookies, control them, inspect their files."),
    "autorecovery": _Row(
        "ops.cli.autorecovery:autorecovery", "Control auto recovery, the repair of ledgers."
    ),
    "metadata": _Row("ops.cli.metadata:metadata", "Create, back up and restore metadata."),
    "zookeeper": _Row("ops.cli.run_node:zookeeper", "Run a ZooKeeper server."),
    "doctor": _Row("ops.cli.doctor:doctor", "Find common mistakes, say what to do."),
    "restart": _Row("ops.cli.restart:restart", "Restart every node, one after the other."),
    "completion": _Row("ops.cli.completion:completion", "Set up completion in a shell."),
    "demo": _Row("ops.cli.demo:demo", "Publish, crash things, and check every record."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module, _, name = row.target.partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `quire {near[0]}`?" if near else "see `quire --help`."
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="quire", message="%(package)s %(version)s")
@cluster_option
@client_config_option
@click.pass_context
def quire(ctx: click.Context, cluster_name: str | None, client_config: Path | None) -> None:
    """Quire: a Kafka-protocol message broker on fenced, replicated ledgers.

    Start with `quire up`, then `quire produce TOPIC` and `quire consume TOPIC`.

    Every command that looks at a cluster takes -b HOST:PORT, the address of any of its brokers;
    `quire up`'s is the default. Named clusters are configured in ~/.config/quire/clusters.toml.

    Exit codes: 0 success, 1 failure (stderr says why), 2 wrong usage, 130 Ctrl-C.
    """
    use(ctx, cluster_name, client_config)


def main() -> None:
    """Entry point of the `quire` command: errors are one sentence, never a traceback."""
    try:
        quire(prog_name="quire")
    except QuireError as error:
        console.fail(console.sentence(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(console.EXIT_BROKEN_PIPE)


if __name__ == "__main__":
    main()

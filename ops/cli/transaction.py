"""`quire transaction`: transactional ids, what they have open, and the abort of one that hangs."""

from __future__ import annotations

import sys
from urllib.parse import quote

import click

from ops.admin_api import Access, AdminApi
from ops.cli.admin import admin_options, complete_transactions, with_api
from ops.cli.console import fail, json_option, print_json, print_table, say

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_id_argument = click.argument(
    "transactional_id", metavar="ID", shell_complete=complete_transactions
)


@click.group()
def transaction() -> None:
    """See who has transactions open and since when, and abort one that hangs.

    \b
    Examples:
      quire transaction list --open 60
      quire transaction describe payments-1
    """


def _path(transactional_id: str) -> str:
    return f"/transactions/{quote(transactional_id, safe='')}"


@transaction.command(name="list")
@click.option(
    "--state",
    type=click.Choice(_STATES, case_sensitive=False),
    metavar="STATE",
    help=f"Only those in this state: {', '.join(_STATES)}.",
)
@click.option(
    "--open",
    "open_seconds",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Only those whose transaction has been open for this long, or decided for this long"
    " without being written everywhere.",
)
@json_option
@admin_options
def list_transactions(
    state: str | None, open_seconds: int | None, as_json: bool, access: Access
) -> None:
    """List the transactional ids of the cluster.

    Read_committed consumers wait for those that are open.

    \b
    Examples:
      quire transaction list
      quire transaction list --open 60
    """

    async def work(api: AdminApi) -> None:
        rows = await api.list("/transactions", state=state, open_seconds=open_seconds)
        if as_json:
            print_json(rows)
        elif rows:
            print_table(
                ["ID", "STATE", "OPEN SECONDS", "PARTITIONS", "PRODUCER", "EPOCH", "CLIENT",
                 "HOST", "COORDINATOR"],
                [
                    [
                        row["transactional_id"],
                        row["state"],
                        _seconds(row["open_seconds"]),
                        row["partition_count"],
                        row["producer_id"],
                        row["producer_epoch"],
                        row["client_id"],
                        row["client_host"],
                        row["coordinator"],
                    ]
                    for row in rows
                ],
            )  # fmt: skip
        else:
            say("There are no such transactional ids.")

    with_api(access, work)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


@transaction.command()
@_id_argument
@json_option
@admin_options
def describe(transactional_id: str, as_json: bool, access: Access) -> None:
    """Show the transactional id ID: its producer, and the partitions of its transaction.

    Once the transaction is committed or aborted, those that have no marker yet.

    \b
    Example:
      quire transaction describe payments-1
    """

    async def work(api: AdminApi) -> None:
        about = await api.get(_path(transactional_id))
        if as_json:
            print_json(about)
            return
        client = f"{about['client_id']} at {about['client_host']}"
        say(
            f"{transactional_id} is {about['state']}, coordinated by broker {about['coordinator']};"
            f" it is producer {about['producer_id']} with epoch {about['producer_epoch']}, used by"
            f" {client if about['client_host'] else 'nobody since its last takeover'}."
        )
        if about["open_seconds"] is not None:
            say(
                f"Its transaction {about['number']} has been open for {about['open_seconds']:.1f}"
                f" s; its timeout is {about['timeout_ms'] / 1000:g} s."
            )
        if about["partitions"]:
            print_table(
                ["TOPIC", "PARTITION"],
                [[row["topic"], row["partition"]] for row in about["partitions"]],
            )

    with_api(access, work)


@transaction.command()
@_id_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@admin_options
def abort(transactional_id: str, yes: bool, access: Access) -> None:
    """Abort the open transaction of ID, and fence its producer.

    The producer gets a fatal error; read_committed consumers never see what it wrote in the
    transaction.

    \b
    Example:
      quire transaction abort payments-1
    """
    if not yes:
        if not sys.stdin.isatty():
            fail("Aborting needs a confirmation: add --yes.")
        click.confirm(
            f"Abort the transaction of {transactional_id} and end its producer?",
            abort=True, err=True,
        )  # fmt: skip

    async def work(api: AdminApi) -> None:
        await api.send("POST", f"{_path(transactional_id)}/abort")
        print(f"The transaction of {transactional_id} is aborted, and its producer fenced.")

    with_api(access, work)

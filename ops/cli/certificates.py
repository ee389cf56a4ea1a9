"""`quire certificates`: create and renew certificates for TLS."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

import click

from client.errors import QuireError
from ops.cli.console import json_option, print_json, print_table, run_blocking, say

_DAYS: Final = 365
_BEFORE_DAYS: Final = 30

_folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("certificates"),
    show_default=True,
    metavar="DIR",
    help="Folder of the certificates.",
)


@click.group()
def certificates() -> None:
    """Create a certificate authority of your own, sign certificates with it, and renew them.

    Brokers and clients trust ca.pem; ca.key stays with you. Brokers take a renewed certificate
    without a restart.

    \b
    Examples:
      quire certificates make broker1 --host broker1.example.org --host 10.0.0.1
      quire certificates renew
    """


@certificates.command()
@click.argument("name")
@click.option(
    "--host", "hosts", multiple=True, required=True, metavar="HOST",
    help="Name or address that it is reached by. Repeat as needed.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1, 3_000), default=_DAYS, show_default=True, metavar="N",
    help="How long it is good for.",
)  # fmt: skip
@_folder_option
def make(name: str, hosts: tuple[str, ...], days: int, folder: Path) -> None:
    """Create NAME.pem and NAME.key, and the authority if there is none.

    \b
    Example:
      quire certificates make broker1 --host broker1.example.org
    """

    def work() -> None:
        from ops.security import certificates as made

        now = datetime.datetime.now(datetime.UTC)
        if made.make_authority(folder, now):
            say(
                f"Created an authority: give {folder / 'ca.pem'} to clients,"
                " keep ca.key for yourself."
            )
        made.issue(folder, name, hosts, now, days)
        print(f"{folder / name}.pem is good for {', '.join(hosts)}.")

    run_blocking(work)


@certificates.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option(
    "--before-days", type=click.IntRange(0, 3_000), default=_BEFORE_DAYS, show_default=True,
    metavar="N", help="Without names: those that expire in this many days.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1, 3_000), default=_DAYS, show_default=True, metavar="N",
    help="How long they are good for.",
)  # fmt: skip
@_folder_option
def renew(names: tuple[str, ...], before_days: int, days: int, folder: Path) -> None:
    """Issue certificates again, with the same keys and hosts.

    \b
    Example: once a week, for what expires within a month
      quire certificates renew
    """

    def work() -> None:
        from ops.security import certificates as made

        now = datetime.datetime.now(datetime.UTC)
        there = {one.name: one for one in made.listed(folder) if one.name != made.AUTHORITY}
        unknown = [name for name in names if name not in there]
        if unknown:
            raise QuireError(f"there is no certificate {', '.join(unknown)} in {folder}")
        soon = now + datetime.timedelta(days=before_days)
        due = names or tuple(name for name, one in there.items() if one.expires < soon)
        for name in due:
            made.renew(folder, name, now, days)
            print(f"{folder / name}.pem is renewed.")
        if not due:
            say(f"Nothing expires within {before_days} days.")

    run_blocking(work)


@certificates.command(name="list")
@json_option
@_folder_option
def list_certificates(as_json: bool, folder: Path) -> None:
    """List the certificates, what they are good for and until when.

    \b
    Example:
      quire certificates list
    """

    def work() -> None:
        from ops.security import certificates as made

        found = made.listed(folder)
        if as_json:
            rows = [
                {"name": one.name, "hosts": list(one.hosts), "expires": one.expires.isoformat()}
                for one in found
            ]
            print_json(rows)
        elif found:
            print_table(
                ["NAME", "EXPIRES", "HOSTS"],
                [[one.name, f"{one.expires:%Y-%m-%d}", ", ".join(one.hosts)] for one in found],
            )
        else:
            say(f"There are no certificates in {folder}.")

    run_blocking(work)

"""`quire user`: who can log in by a password."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from client.errors import QuireError
from client.pubsub.brokers import Brokers
from ops.cli.addresses import bootstrap_option
from ops.cli.console import fail, json_option, print_json, print_table, run_blocking, say
from ops.security.security_admin import SCRAM, SecurityAdmin

_VARIABLE: Final = "QUIRE_USER_PASSWORD"
_CHARS_MIN: Final = 8


@click.group()
def user() -> None:
    """List, create and remove the users of a cluster, and change their passwords.

    Clients log in by SCRAM, or by PLAIN where brokers take it. Passwords are never options:
    they are asked for, or read from a file or the environment (QUIRE_USER_PASSWORD).

    \b
    Examples:
      quire user create anna
      quire user list
    """


@user.command(name="list")
@json_option
@bootstrap_option
def list_users(as_json: bool, bootstrap_servers: Brokers) -> None:
    """List the users.

    \b
    Example:
      quire user list
    """

    def work() -> None:
        with SecurityAdmin(bootstrap_servers) as admin:
            users = admin.users()
        if as_json:
            print_json([{"name": one.name, "mechanisms": dict(one.mechanisms)} for one in users])
        elif users:
            rows = [[one.name, ", ".join(one.mechanisms)] for one in users]
            print_table(["USER", "MECHANISMS"], rows)
        else:
            say("There are no users yet. Create one with `quire user create NAME`.")

    run_blocking(work)


_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(SCRAM), case_sensitive=False),
    default=tuple(SCRAM),
    help="The mechanisms that the password works with. [default: both]",
)
_file_option = click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with the password in its first line.",
)


@user.command()
@click.argument("name")
@_mechanism_option
@_file_option
@bootstrap_option
def create(
    name: str, mechanisms: tuple[str, ...], password_file: Path | None, bootstrap_servers: Brokers
) -> None:
    """Create the user NAME.

    \b
    Example:
      quire user create anna
    """

    def work() -> None:
        with SecurityAdmin(bootstrap_servers) as admin:
            if admin.users([name]):
                raise QuireError(f"there is a user {name!r}: `quire user alter` changes it")
            admin.set_password(name, _password(name, password_file), mechanisms)
        print(f"User {name} can log in by {' and '.join(mechanisms)}.")

    run_blocking(work)


@user.command()
@click.argument("name")
@_mechanism_option
@_file_option
@bootstrap_option
def alter(
    name: str, mechanisms: tuple[str, ...], password_file: Path | None, bootstrap_servers: Brokers
) -> None:
    """Give the user NAME another password. Open connections stay as they are.

    \b
    Example:
      quire user alter anna --password-file new.txt
    """

    def work() -> None:
        with SecurityAdmin(bootstrap_servers) as admin:
            if not admin.users([name]):
                raise QuireError(f"there is no user {name!r}: `quire user create` creates one")
            admin.set_password(name, _password(name, password_file), mechanisms)
        print(f"User {name} has a new password for {' and '.join(mechanisms)}.")

    run_blocking(work)


@user.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def delete(name: str, yes: bool, bootstrap_servers: Brokers) -> None:
    """Remove the user NAME; entries of access control lists about it stay.

    \b
    Example:
      quire user delete anna
    """
    if not yes:
        if not sys.stdin.isatty():
            fail("Removing a user needs a confirmation: add --yes.")
        click.confirm(f"Remove user {name}?", abort=True, err=True, default=False)

    def work() -> None:
        with SecurityAdmin(bootstrap_servers) as admin:
            admin.delete_user(name)
        print(f"User {name} is gone.")

    run_blocking(work)


def _password(name: str, file: Path | None) -> str:
    """Return the password that was given, or asked for. Raises QuireError."""
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise QuireError(f"cannot read {file}: {error}") from error
        found = lines[0] if lines else ""
    elif _VARIABLE in os.environ:
        found = os.environ[_VARIABLE]
    elif sys.stdin.isatty():
        found = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        raise QuireError(f"give the password by --password-file, or in {_VARIABLE}")
    if len(found) < _CHARS_MIN:
        raise QuireError(f"the password has {len(found)} characters, fewer than {_CHARS_MIN}")
    return str(found)

"""`quire acl`: who may do what, entry by entry or by roles."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from client.errors import QuireError
from client.pubsub.brokers import Brokers
from ops.cli.addresses import bootstrap_option
from ops.cli.console import fail, json_option, print_json, print_table, run_blocking, say
from ops.security.acl_entries import (
    CLUSTER,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    TYPES,
    USER,
    Entry,
    Filter,
    may_alter,
    number,
)
from ops.security.roles import APPLICATION, READER, ROLES, Role, entries_of, recognized
from ops.security.security_admin import SecurityAdmin

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def acl() -> None:
    """See and change who may do what, by roles or by single entries.

    A role is a set of entries: reader and writer of a topic, and application, which may use all
    topics, groups and transactional ids whose names begin with a prefix.

    \b
    Examples:
      quire acl grant writer --user anna --topic orders
      quire acl grant reader --user bert --topic orders --group billing
      quire acl list
    """


@acl.command(name="list")
@click.option("--user", metavar="NAME", help="Only entries about this user.")
@click.option("--entries", "only_entries", is_flag=True, help="Show entries only, without roles.")
@json_option
@bootstrap_option
def list_entries(
    user: str | None, only_entries: bool, as_json: bool, bootstrap_servers: Brokers
) -> None:
    """List roles, and all entries, those of roles too.

    \b
    Example:
      quire acl list --user anna
    """

    def work() -> None:
        principal = None if user is None else f"{USER}{user}"
        with SecurityAdmin(bootstrap_servers) as admin:
            found = admin.entries(Filter(principal=principal))
        roles, rest = ([], found) if only_entries else recognized(found)
        others = frozenset(rest)
        if as_json:
            print_json(
                {
                    "roles": [{**role._asdict(), "text": role.text} for role in roles],
                    "entries": [_as_json(one) for one in rest],
                }
            )
            return
        if roles:
            print_table(["PRINCIPAL", "ROLE"], [[one.principal, one.text] for one in roles])
            print()
        if found:
            columns = ["PRINCIPAL", "", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST", "OF"]
            rows = [[*one.words(), "" if one in others else "a role"] for one in found]
            print_table(columns if roles else columns[:-1], [r if roles else r[:-1] for r in rows])
        if not found:
            say("There are no entries.")

    run_blocking(work)


def _as_json(entry: Entry) -> dict[str, str]:
    names = ("principal", "permission", "operation", "resource_type", "name", "pattern", "host")
    return dict(zip(names, entry.words(), strict=True))


def _entry_options(command: Command) -> Command:
    for option in reversed(
        (
            click.option("--user", metavar="NAME", required=True, help="The user; * is everybody."),
            click.option(
                "--operation",
                "operations",
                type=click.Choice(list(OPERATIONS.values()), case_sensitive=False),
                multiple=True,
                required=True,
                metavar="OPERATION",
                help=f"Which: {', '.join(OPERATIONS.values())}. Repeat as needed.",
            ),
            click.option("--topic", metavar="NAME", help="On this topic; * is all."),
            click.option("--group", metavar="NAME", help="On this group; * is all."),
            click.option(
                "--transactional-id", metavar="ID", help="On this transactional id; * is all."
            ),
            click.option("--cluster", is_flag=True, help="On the cluster as a whole."),
            click.option(
                "--prefixed", is_flag=True, help="On everything whose name begins with this."
            ),
            click.option("--deny", is_flag=True, help="Deny it, even if another entry allows it."),
            click.option("--host", default="*", metavar="ADDRESS", help="From this address only."),
            bootstrap_option,
        )
    ):
        command = option(command)
    return command


def _entries(
    user: str, operations: tuple[str, ...], *, prefixed: bool, deny: bool, host: str, **places: Any
) -> list[Entry]:
    """Return the entries that options describe. Raises QuireError."""
    named = {kind: name for kind, name in places.items() if name}
    if len(named) != 1:
        raise QuireError("name one of --topic, --group, --transactional-id and --cluster")
    ((kind, name),) = named.items()
    if kind == "cluster":
        name = CLUSTER
    return [
        Entry(
            number(TYPES, kind.replace("_", "-")),
            name,
            number(PATTERNS, "prefixed" if prefixed else "literal"),
            f"{USER}{user}",
            host,
            number(OPERATIONS, operation),
            number(PERMISSIONS, "deny" if deny else "allow"),
        )
        for operation in operations
    ]


@acl.command()
@_entry_options
def add(bootstrap_servers: Brokers, **options: Any) -> None:
    """Add entries: one for each operation.

    \b
    Example:
      quire acl add --user anna --operation read --topic orders
    """

    def work() -> None:
        wanted = _entries(**options)
        with SecurityAdmin(bootstrap_servers) as admin:
            admin.add(wanted)
        print(f"{_count(len(wanted))} added.")

    run_blocking(work)


@acl.command()
@_entry_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def remove(bootstrap_servers: Brokers, yes: bool, **options: Any) -> None:
    """Remove entries; asks before you take away your own right to change them.

    \b
    Example:
      quire acl remove --user anna --operation read --topic orders
    """

    def work() -> None:
        wanted = _entries(**options)
        with SecurityAdmin(bootstrap_servers) as admin:
            _remove(admin, wanted, yes=yes)

    run_blocking(work)


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _remove(admin: SecurityAdmin, wanted: list[Entry], *, yes: bool) -> None:
    me = f"{USER}{admin.me}"
    if not yes:
        before = admin.entries(Filter())
        after = [one for one in before if one not in wanted]
        if may_alter(before, me) and not may_alter(after, me):
            text = f"This takes the last right of {admin.me} to change entries away"
            if not sys.stdin.isatty():
                fail(f"{text}: add --yes to do it.")
            click.confirm(f"{text}. Continue?", abort=True, err=True, default=False)
    # The right to do this goes last, or the rest would stay.
    gone = admin.remove(sorted(wanted, key=lambda one: may_alter([one], one.principal)))
    print(f"{_count(gone)} removed.")
    if gone < len(wanted):
        say("The others were not there.")


def _role_options(command: Command) -> Command:
    for option in reversed(
        (
            click.argument("role", type=click.Choice(ROLES)),
            click.option("--user", metavar="NAME", required=True, help="Who has the role."),
            click.option("--topic", metavar="NAME", help="Topic of a reader or writer."),
            click.option("--group", metavar="NAME", help="Group that a reader reads in."),
            click.option("--prefix", metavar="WORD", help="Prefix of an application's names."),
            click.option("--prefixed", is_flag=True, help="The names given are prefixes."),
            bootstrap_option,
        )
    ):
        command = option(command)
    return command


def _role(
    role: str, user: str, topic: str | None, group: str | None, prefix: str | None, prefixed: bool
) -> Role:
    """Return the role that options describe. Raises QuireError."""
    principal = f"{USER}{user}"
    if role == APPLICATION:
        if not prefix or topic or group:
            raise QuireError("an application needs --prefix, and neither --topic nor --group")
        return Role(principal, role, prefix, is_prefix=True)
    if not topic or prefix:
        raise QuireError(f"a {role} needs --topic, and no --prefix")
    if (role == READER) != bool(group):
        raise QuireError("a reader needs --group, and a writer has none")
    return Role(principal, role, topic, group or "", prefixed)


@acl.command()
@_role_options
def grant(bootstrap_servers: Brokers, **options: Any) -> None:
    """Give a user a role: reader, writer or application.

    \b
    Examples:
      quire acl grant reader --user bert --topic orders --group billing
      quire acl grant application --user shop --prefix shop-
    """

    def work() -> None:
        role = _role(**options)
        with SecurityAdmin(bootstrap_servers) as admin:
            admin.add(entries_of(role))
        print(f"{role.principal} is {role.text}.")

    run_blocking(work)


@acl.command()
@_role_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def revoke(bootstrap_servers: Brokers, yes: bool, **options: Any) -> None:
    """Revoke a role; entries that another role of the user needs stay.

    \b
    Example:
      quire acl revoke reader --user bert --topic orders --group billing
    """

    def work() -> None:
        role = _role(**options)
        with SecurityAdmin(bootstrap_servers) as admin:
            there = admin.entries(Filter(principal=role.principal))
            others = [one for one in recognized(there)[0] if one != role]
            kept = {entry for one in others for entry in entries_of(one)}
            _remove(admin, [one for one in entries_of(role) if one not in kept], yes=yes)

    run_blocking(work)

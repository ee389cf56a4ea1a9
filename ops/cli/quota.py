"""`quire quota`: how much users, client ids and addresses may use of each broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from client.errors import QuireError
from client.pubsub.brokers import Brokers
from ops.cli.addresses import bootstrap_option
from ops.cli.console import json_option, print_json, print_table, run_blocking, say
from ops.security.security_admin import EntityParts, SecurityAdmin

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def quota() -> None:
    """See and change quotas: bytes per second, time of brokers, changes, connections.

    \b
    Examples:
      quire quota set --user anna producer_byte_rate=1048576
      quire quota set --default-client-id request_percentage=20
      quire quota list
    """


@quota.command(name="list")
@json_option
@bootstrap_option
def list_quotas(as_json: bool, bootstrap_servers: Brokers) -> None:
    """List all entities that have quotas.

    \b
    Example:
      quire quota list
    """

    def work() -> None:
        with SecurityAdmin(bootstrap_servers) as admin:
            found = admin.quotas()
        if as_json:
            print_json([{"entity": dict(entity), "quotas": dict(q)} for entity, q in found])
        elif found:
            rows = [
                [_text(entity), key, f"{value:g}" if value < 1e6 else f"{value:.0f}"]
                for entity, quotas in found
                for key, value in sorted(quotas.items())
            ]
            print_table(["WHO", "QUOTA", "AT MOST"], rows)
        else:
            say("There are no quotas.")

    run_blocking(work)


def _text(entity: EntityParts) -> str:
    return ", ".join(
        f"{kind} {'(default)' if name is None else name}" for kind, name in reversed(list(entity))
    )


def _entity_options(command: Command) -> Command:
    for option in reversed(
        (
            click.option("--user", metavar="NAME", help="Of this user."),
            click.option("--default-user", is_flag=True, help="Of users without their own."),
            click.option("--client-id", metavar="ID", help="Of this client id."),
            click.option("--default-client-id", is_flag=True, help="Of ids without their own."),
            click.option("--ip", metavar="ADDRESS", help="Of this address."),
            click.option("--default-ip", is_flag=True, help="Of addresses without their own."),
            bootstrap_option,
        )
    ):
        command = option(command)
    return command


def _entity(**options: Any) -> EntityParts:
    """Return what options name. Raises QuireError."""
    parts: list[tuple[str, str | None]] = []
    for kind in ("user", "client_id", "ip"):
        name, is_default = options[kind], options[f"default_{kind}"]
        if name is not None and is_default:
            raise QuireError(f"--{kind.replace('_', '-')} excludes the default")
        if name is not None or is_default:
            parts.append((kind.replace("_", "-"), name))
    if not parts:
        raise QuireError(
            "name an entity with --user, --client-id or --ip, or the default of one of these"
        )
    return parts


@quota.command(name="set")
@click.argument("quotas", nargs=-1, metavar="[QUOTA=NUMBER]...")
@click.option(
    "--config", "more", multiple=True, metavar="QUOTA=NUMBER", help="The same. Repeat as needed."
)
@_entity_options
def set_quotas(
    quotas: tuple[str, ...], more: tuple[str, ...], bootstrap_servers: Brokers, **options: Any
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    QUOTA is producer_byte_rate, consumer_byte_rate, request_percentage (of a broker),
    controller_mutation_rate (partitions made and deleted), or, of an address,
    connection_creation_rate.

    \b
    Example:
      quire quota set --user anna --client-id loader producer_byte_rate=10485760
    """

    def work() -> None:
        entity = _entity(**options)
        changes = dict(_pair(text) for text in (*quotas, *more))
        if not changes:
            raise QuireError("name a quota, as producer_byte_rate=10485760")
        with SecurityAdmin(bootstrap_servers) as admin:
            admin.set_quotas(entity, changes)
        print(f"Set for {_text(entity)}.")

    run_blocking(work)


def _pair(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return key, float(value)
    except ValueError:
        raise QuireError(f"{text!r} is not QUOTA=NUMBER") from None


@quota.command()
@click.argument("quotas", nargs=-1, metavar="[QUOTA...]")
@_entity_options
def remove(quotas: tuple[str, ...], bootstrap_servers: Brokers, **options: Any) -> None:
    """Remove quotas: those named, or all of an entity.

    \b
    Example:
      quire quota remove --user anna
    """

    def work() -> None:
        entity = _entity(**options)
        with SecurityAdmin(bootstrap_servers) as admin:
            there = next((q for e, q in admin.quotas() if dict(e) == dict(entity)), {})
            gone = quotas or tuple(there)
            unknown = [key for key in gone if key not in there]
            if unknown or not gone:
                raise QuireError(f"{_text(entity)} has no quota {', '.join(unknown) or 'at all'}")
            admin.set_quotas(entity, dict.fromkeys(gone))
        print(f"{', '.join(gone)} of {_text(entity)} removed.")

    run_blocking(work)

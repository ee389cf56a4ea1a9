"""Where a command finds the cluster: one Kafka address is enough, the brokers tell the rest.

Each kind of address comes from the first of these that has it:

1. the command's own option (`--bootstrap-server`, `--admin`, `--zookeeper`); for the admin API
   and ZooKeeper also `--bootstrap-server`, whose brokers are asked;
2. the cluster named with `quire --cluster NAME` or `QUIRE_CLUSTER` (`named_clusters.py`);
3. the option's environment variable, and then `QUIRE_BOOTSTRAP` as above;
4. where `quire up` puts things.

So a name never mixes with addresses of another cluster that the environment still has.

Brokers that want TLS or a login are reached by the settings of `quire --client-config FILE`, or of
the named cluster's `client_config`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from client.errors import QuireError
from client.kafka_security import PLAIN_TEXT, ClientSecurity, read_properties, security_of
from client.pubsub.addresses import BOOTSTRAP_SERVERS, parse
from client.pubsub.broker_settings import ADMIN_URLS, ZOOKEEPER, broker_settings
from client.pubsub.brokers import Brokers
from client.security.admin_access import Teller
from ops.cli import named_clusters
from ops.cli.named_clusters import NamedCluster

Command = TypeVar("Command", bound=Callable[..., Any])

_GIVEN: Final = "ops.cli.addresses.bootstrap_servers"
"""Key in click's `meta`: the Kafka address of a command that talks to something else."""
_SECURITY: Final = "ops.cli.addresses.security"
"""Key in click's `meta`: how Kafka's clients reach the brokers."""
_BOOTSTRAP_VARIABLE: Final = "QUIRE_BOOTSTRAP"
_METAVAR: Final = "HOST:PORT[,...]"


def _complete_cluster(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    try:
        known = named_clusters.read_all(named_clusters.file_path())
    except QuireError:
        return []  # a shell that waits for words must not get sentences
    return sorted(name for name in known if name.startswith(incomplete))


cluster_option = click.option(
    "--cluster",
    "cluster_name",
    metavar="NAME",
    envvar="QUIRE_CLUSTER",
    show_envvar=True,
    default=None,
    shell_complete=_complete_cluster,
    help="Use this cluster of ~/.config/quire/clusters.toml.",
)
"""Option of `quire` itself, before the command."""


client_config_option = click.option(
    "--client-config",
    "client_config",
    metavar="FILE",
    envvar="QUIRE_CLIENT_CONFIG",
    show_envvar=True,
    default=None,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Properties file of a Kafka client: security.protocol, sasl.*, ssl.*.",
)
"""Option of `quire` itself, before the command."""


def use(ctx: click.Context, cluster_name: str | None, client_config: Path | None) -> None:
    """Remember the named cluster and the security settings for the command.

    Raises ConfigError if there is no such cluster, or the settings make no sense.
    """
    if client_config is not None:
        ctx.meta[_SECURITY] = security_of(read_properties(client_config))
    if cluster_name is not None:
        ctx.obj = named_clusters.find(cluster_name, named_clusters.file_path())


def named(ctx: click.Context) -> NamedCluster | None:
    """Return the named cluster, if one was named."""
    found = ctx.find_root().obj
    return found if isinstance(found, NamedCluster) else None


def prefer(ctx: click.Context, param: click.Parameter, of_cluster: str) -> bool:
    """Tell whether what the named cluster says comes before the value that a parameter has."""
    source = ctx.get_parameter_source(param.name or "")
    return bool(of_cluster) and source is not ParameterSource.COMMANDLINE


def client_security(ctx: click.Context) -> ClientSecurity:
    """Return the security settings of Kafka clients, for this command. Raises ConfigError."""
    found = ctx.meta.get(_SECURITY)
    cluster = named(ctx)
    if found is None and cluster is not None and cluster.client_config:
        found = security_of(read_properties(Path(cluster.client_config).expanduser()))
    return found if isinstance(found, ClientSecurity) else PLAIN_TEXT


def _secured(ctx: click.Context, bootstrap_servers: str) -> Brokers:
    """Return addresses with the security settings for them. Raises ConfigError."""
    return Brokers(bootstrap_servers, client_security(ctx))


def _bootstrap(ctx: click.Context, param: click.Parameter, value: str) -> Brokers:
    cluster = named(ctx)
    if cluster is not None and prefer(ctx, param, cluster.bootstrap_server):
        value = cluster.bootstrap_server
    return _secured(ctx, value)


bootstrap_option = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap_servers",
    metavar=_METAVAR,
    envvar=_BOOTSTRAP_VARIABLE,
    default=BOOTSTRAP_SERVERS,
    show_default=True,
    show_envvar=True,
    callback=_bootstrap,
    help="Where the brokers are; one is enough to find the others.",
)
"""Option of every command that talks to brokers in Kafka's protocol."""


def _note(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        is_typed = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        ctx.meta[_GIVEN] = (value, is_typed)


_asked_option = click.option(
    "-b",
    "--bootstrap-server",
    "asked_servers",
    metavar=_METAVAR,
    envvar=_BOOTSTRAP_VARIABLE,
    default=None,
    show_envvar=True,
    expose_value=False,
    is_eager=True,
    callback=_note,
    help="Where a broker is: it tells the other addresses.",
)


def asked_option(command: Command) -> Command:
    """Add -b to a command that talks to the admin API or ZooKeeper, once."""
    added: list[click.Parameter] = getattr(command, "__click_params__", [])
    if any(param.name == "asked_servers" for param in added):
        return command
    return _asked_option(command)


class Found(NamedTuple):
    """An address, and whom it is from."""

    value: str
    told_by: Brokers | None = None
    """Whoever answered there told it; None: the operator named it, or it is the default."""

    @property
    def teller(self) -> Teller | None:
        """What is known of whoever told it."""
        if self.told_by is None:
            return None
        security = self.told_by.security
        hosts = frozenset(host for host, _ in parse(self.told_by.bootstrap_servers))
        return Teller(hosts, is_proven=security.is_tls and security.checks_name)


def resolve(name: str, given: str | None, default: str) -> Found:
    """Return the admin URLs (`name` "admin_urls") or the ZooKeeper servers ("hosts") to use.

    `given` is the value of the command's own option, perhaps from the environment. Asks brokers
    if need be: raises BrokerUnreachable, PubSubError, and QuireError if they do not know.
    """
    ctx = click.get_current_context()
    servers, is_typed = ctx.meta.get(_GIVEN, ("", False))
    if given and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        return Found(given)
    if is_typed:
        return _told(name, servers)
    cluster = named(ctx)
    if cluster is not None:
        of_cluster = cluster.admin if name == "admin_urls" else cluster.zookeeper
        return Found(of_cluster) if of_cluster else _told(name, _address_of(cluster, name))
    if given:
        return Found(given)
    return _told(name, servers) if servers else Found(default)


def _address_of(cluster: NamedCluster, name: str) -> str:
    if not cluster.bootstrap_server:
        what = "admin" if name == "admin_urls" else "zookeeper"
        raise QuireError(
            f"the named cluster has neither {what} nor bootstrap_server: give it one of them in"
            f" {named_clusters.file_path()}"
        )
    return cluster.bootstrap_server


_SETTINGS: Final[Mapping[str, tuple[str, str, str]]] = {
    "admin_urls": (ADMIN_URLS, "admin API", "--admin URL"),
    "hosts": (ZOOKEEPER, "ZooKeeper servers", "--zookeeper HOST:PORT"),
}
"""By parameter: the broker's setting, what it names, and the option to give instead."""


def _told(name: str, servers: str) -> Found:
    setting, what, option = _SETTINGS[name]
    brokers = _secured(click.get_current_context(), servers)
    found = _ask(brokers).get(setting, "")
    if not found:
        raise QuireError(f"the brokers at {servers} know of no {what}: give it with {option}")
    return Found(found, brokers)


@functools.cache
def _ask(servers: Brokers) -> Mapping[str, str]:
    """Ask once, however many kinds of address a command needs."""
    return asyncio.run(broker_settings(servers, (ADMIN_URLS, ZOOKEEPER)))

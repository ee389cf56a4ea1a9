"""Checks of one machine and of the settings of a node that runs, or is going to run, on it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.config import BrokerConfig
from broker.front.endpoints import endpoints_of, listeners_of
from ops.doctor.findings import Finding, fine, trouble, warning
from ops.java import Java, JavaMissing
from ops.zookeeper_jars import JarsMissing

_EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, not listened on)
FILES_MIN: Final = 65_536
"""Connections, log files and LevelDB tables together; distributions give 1,024."""
SESSION_MS_MIN: Final = 4_000
"""Shorter than a long pause of a busy virtual machine."""

Resolve = Callable[[str], Collection[str]]
"""Addresses of a host name; raises OSError when there is none."""


def check_port(port: int, purpose: str, *, is_free: bool, owner: str | None) -> Finding:
    """A port that a node of ours wants: free, ours already, or somebody else's."""
    if is_free:
        return fine("ports", f"port {port} for {purpose} is free")
    who = owner or "a program of another user"
    if owner is not None and owner.startswith("python"):
        return fine("ports", f"port {port} for {purpose} is served by {who}")
    return trouble(
        "ports",
        f"port {port} for {purpose} is taken by {who}",
        "Stop that program, or give this node another port.",
    )


def check_advertised(
    config: BrokerConfig, resolve: Resolve, own: Callable[[str], bool]
) -> list[Finding]:
    """Where clients of each listener are sent: it must lead to this machine, from theirs.

    `own`: whether an address is one of this machine.
    """
    listeners = listeners_of(config)
    sent = endpoints_of(config, {one.name: one.bind.port for one in listeners})
    found = []
    for one in listeners:
        is_open = one.bind.host in _EVERYWHERE or not _is_loopback(one.bind.host)
        clients, setting = "clients", "advertised_host"
        if config.security.listeners:
            clients = f"clients of {one.name}"
            setting = f"{one.name} in security.advertised_listeners"
        host = sent[one.name].host
        found.append(_check_sent(host, clients, setting, resolve, own, is_open=is_open))
    return found


def _check_sent(
    host: str,
    clients: str,
    setting: str,
    resolve: Resolve,
    own: Callable[[str], bool],
    *,
    is_open: bool,
) -> Finding:
    try:
        addresses = resolve(host)
    except OSError as error:
        return trouble(
            "advertised",
            f"{clients} are sent to {host}, a name that does not resolve here ({error})",
            f"Set {setting} to a name or address that clients can use.",
        )
    shown = ", ".join(sorted(addresses))
    if is_open and any(_is_loopback(address) for address in addresses):
        return trouble(
            "advertised",
            f"this broker listens for other machines, but sends {clients} to {host} ({shown}),"
            " which is their own machine",
            f"Set {setting} to a name or address that leads here from other machines;"
            " look for a loopback line in /etc/hosts.",
        )
    if not any(own(address) for address in addresses):
        return warning(
            "advertised",
            f"{clients} are sent to {host} ({shown}), which is not an address of this machine",
            "This is right behind a load balancer or NAT that leads here; otherwise correct"
            f" {setting}.",
        )
    return fine("advertised", f"{clients} are sent to {host} ({shown})")


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


def check_java(find: Callable[[], Java]) -> Finding:
    """A Java for the ZooKeeper server, if it is to run here."""
    try:
        java = find()
    except (JavaMissing, JarsMissing) as error:
        return warning("java", str(error), "Not needed where ZooKeeper runs elsewhere.")
    return fine("java", f"Java {java.version} at {java.path}")


def check_files(soft_limit: int, wanted: int = FILES_MIN) -> Finding:
    """The limit on open files of this shell, which nodes started from it inherit."""
    if soft_limit >= wanted:
        return fine("files", f"a process may have {soft_limit} open files")
    return warning(
        "files",
        f"a process may have only {soft_limit} open files",
        f"Raise it to {wanted}: LimitNOFILE={wanted} in the systemd unit, `ulimit -n {wanted}`"
        " in a shell.",
    )


def check_session(node: str, timeout_ms: int) -> Finding:
    """A session that ends while its owner only paused makes the cluster run from a healthy node."""
    if timeout_ms >= SESSION_MS_MIN:
        return fine("sessions", f"the {node}'s ZooKeeper session lasts {timeout_ms} ms")
    return warning(
        "sessions",
        f"the {node}'s ZooKeeper session lasts only {timeout_ms} ms",
        f"Set session_timeout_ms to {SESSION_MS_MIN} or more: a pause of that length must not"
        " count as death. A killed process is noticed at once anyway.",
    )

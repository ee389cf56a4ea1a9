"""Listeners as Kafka names them: where a broker listens, in which way, and what clients are told.

    listeners             NAME://host:port, one each; no host, or 0.0.0.0: all addresses
    listener_protocols    NAME:PROTOCOL; a name that is a protocol needs no entry
    advertised_listeners  NAME://host:port, the address that clients of that listener are told

Source: Kafka's listeners, listener.security.protocol.map, advertised.listeners (KIP-103).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from client.errors import ConfigError

DEFAULT_NAME: Final = "PLAINTEXT"
"""Of the one listener of a broker that configures none."""

_ADDRESS: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9_.-]*)://(\[[0-9A-Fa-f:.]*\]|[^\[\]/:]*):(\d{1,5})"
)


class SecurityProtocol(enum.StrEnum):
    """How clients of a listener speak to it."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        """Whether everything is inside TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """Whether clients have to log in."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(NamedTuple):
    """Where something listens, or can be reached."""

    host: str
    port: int


class Listener(NamedTuple):
    """One listener of this broker."""

    name: str
    protocol: SecurityProtocol
    bind: Address
    advertised: Address | None
    """None: what each client connected to."""


def parse_listeners(
    listeners: Sequence[str], protocols: Iterable[str], advertised: Iterable[str]
) -> tuple[Listener, ...]:
    """Return what the three settings say together. Raises ConfigError."""
    binds = _addresses("listeners", listeners)
    told = _addresses("advertised_listeners", advertised)
    kinds = _protocols(protocols)
    for setting, names in (("advertised_listeners", told), ("listener_protocols", kinds)):
        for name in names:
            if name not in binds:
                raise ConfigError(f"{setting} names {name}, which is not among the listeners")
    for name, address in told.items():
        if not address.host or not address.port:
            raise ConfigError(f"advertised_listeners: {name} needs a host and a port")
    taken: dict[int, str] = {}
    for name, address in binds.items():
        if address.port and address.port in taken:
            raise ConfigError(f"listeners {taken[address.port]} and {name} have the same port")
        taken[address.port] = name
    return tuple(
        Listener(name, _protocol_of(name, kinds), bind, told.get(name))
        for name, bind in binds.items()
    )


def _addresses(setting: str, items: Iterable[str]) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for item in items:
        match = _ADDRESS.fullmatch(item)
        if match is None or int(match[3]) > 65_535:
            raise ConfigError(f"{setting} must have the form NAME://host:port, not {item!r}")
        name = match[1].upper()
        if name in found:
            raise ConfigError(f"{setting} names {name} twice")
        found[name] = Address(match[2].strip("[]"), int(match[3]))
    return found


def _protocols(items: Iterable[str]) -> dict[str, SecurityProtocol]:
    found: dict[str, SecurityProtocol] = {}
    for item in items:
        name, colon, protocol = (part.strip() for part in item.partition(":"))
        if not colon or not name:
            raise ConfigError(f"listener_protocols must have the form NAME:PROTOCOL, not {item!r}")
        if name.upper() in found:
            raise ConfigError(f"listener_protocols names {name.upper()} twice")
        found[name.upper()] = _protocol(protocol)
    return found


def _protocol(text: str) -> SecurityProtocol:
    try:
        return SecurityProtocol(text.upper())
    except ValueError:
        known = ", ".join(SecurityProtocol)
        raise ConfigError(f"there is no security protocol {text!r}; there are {known}") from None


def _protocol_of(name: str, kinds: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    if name in kinds:
        return kinds[name]
    try:
        return SecurityProtocol(name)
    except ValueError:
        raise ConfigError(
            f"listener {name} has no security protocol: add {name}:PLAINTEXT or another one to"
            " listener_protocols"
        ) from None

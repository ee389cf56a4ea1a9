"""Parse bootstrap addresses, and find out why nobody answers there.

aiokafka only says that it could not bootstrap; people need to know whether the name, the port or
the program behind the port is wrong.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from client.errors import ConfigError

BOOTSTRAP_SERVERS: Final = "localhost:9092"
"""Where `quire up` puts its first broker."""

_DEFAULT_PORT: Final = 9092
_PORT_MAX: Final = 65535
_PROBE_TIMEOUT_S: Final = 3.0


def parse(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Split `host:port[,host:port...]`; a missing port is 9092, IPv6 stands in brackets.

    Raises ConfigError with the part that is wrong.
    """
    addresses = []
    for part in bootstrap_servers.split(","):
        text = part.strip()
        host, colon, port_text = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, port_text = text, str(_DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        is_port = port_text.isdecimal() and 0 < int(port_text) <= _PORT_MAX
        if not is_port or not _is_name(host):
            raise ConfigError(f"{text!r} is not an address: write host:port, like localhost:9092")
        addresses.append((host, int(port_text)))
    return addresses


def _is_name(host: str) -> bool:
    """Whether a host can be looked up at all: labels that are empty or too long cannot."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


async def why_unreachable(bootstrap_servers: str) -> str:
    """Try each address once and say, in one clause, what stands in the way."""
    findings = [await _probe(host, port) for host, port in parse(bootstrap_servers)]
    return "; ".join(findings)


async def _probe(host: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except ConnectionRefusedError:
        return f"nothing listens at {host}:{port}"
    except socket.gaierror:
        return f"there is no host named {host}"
    except TimeoutError:
        return f"{host}:{port} does not answer"
    except OSError as error:
        return f"{host}:{port} cannot be reached ({error.strerror or error})"
    transport.close()
    return f"{host}:{port} accepts connections, but no Kafka broker answers there"

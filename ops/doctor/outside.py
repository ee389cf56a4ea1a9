"""Looks at the listeners of brokers as clients do: from here, at the addresses that they are told.

(The most frequent trouble of Kafka's users: the first connection works, and the address that comes
with it does not.) A look needs no login: ApiVersions is answered before one.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from client.security.admin_access import is_loopback
from ops.doctor.findings import Finding, fine, trouble, warning
from ops.probes import API_VERSIONS, CORRELATION_ID

_TIMEOUT_S: Final = 3.0
_WRONG_NAMES: Final = (62, 64)
"""What OpenSSL calls a certificate of another host name, or of another address."""
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
_PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_WANTS_CERTIFICATE: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")


class ListenerState(enum.Enum):
    """What a client finds at an address."""

    SERVES = "serves"
    UNRESOLVED = "unresolved"
    SILENT = "silent"
    """Nobody listens, or the way is closed."""
    STRANGE = "strange"
    """Somebody answers, and not as a Kafka broker does."""
    WANTS_TLS = "wants TLS"
    SPEAKS_PLAIN = "speaks plain text"
    WRONG_NAME = "wrong name"
    """Its certificate is for other names."""
    UNTRUSTED = "untrusted"
    """Its certificate is of an authority that is not trusted here, or has expired."""
    WANTS_CERTIFICATE = "wants a certificate"


class Look(NamedTuple):
    """At one address."""

    state: ListenerState
    detail: str = ""
    """What is said of it: an error's text, or the names in a certificate."""
    addresses: tuple[str, ...] = ()
    """What the name resolves to here."""


async def look(host: str, port: int, context: ssl.SSLContext | None) -> Look:
    """Ask whoever is at an address. `context`: of TLS; None: plain text."""
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Look(ListenerState.UNRESOLVED, str(getattr(error, "strerror", None) or error))
    addresses = tuple(sorted({str(row[4][0]) for row in rows}))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            seen = await _ask(host, port, context)
    except TimeoutError:
        seen = Look(ListenerState.SILENT, f"no answer within {_TIMEOUT_S:g} s")
    if seen.state is ListenerState.WRONG_NAME and context is not None:
        seen = seen._replace(detail=await _names(host, port, context))
    return seen._replace(addresses=addresses)


async def _ask(host: str, port: int, context: ssl.SSLContext | None) -> Look:
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        writer.write(API_VERSIONS)
        answer = await reader.readexactly(10)
    except ssl.SSLCertVerificationError as error:
        is_named = error.verify_code in _WRONG_NAMES
        return Look(
            ListenerState.WRONG_NAME if is_named else ListenerState.UNTRUSTED,
            str(error.verify_message),
        )
    except ssl.SSLError as error:
        return _of_tls(error)
    except asyncio.IncompleteReadError as error:
        answer = error.partial
    except OSError as error:
        text = str(error.strerror or error)
        # What is refused, or not to be reached, never was a connection.
        is_connection = writer is not None or isinstance(
            error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError
        )
        return Look(ListenerState.STRANGE if is_connection else ListenerState.SILENT, text)
    finally:
        if writer is not None:
            writer.close()
    if answer[:2] in _TLS_RECORDS:
        return Look(ListenerState.WANTS_TLS)
    if context is not None and not answer:
        # With TLS 1.3 a server says so after the handshake.
        return Look(ListenerState.WANTS_CERTIFICATE)
    if len(answer) < 10:
        what = repr(answer.decode("latin-1")) if answer else "nothing"
        return Look(ListenerState.STRANGE, f"it answers {what} and hangs up")
    length, correlation_id, error_code = struct.unpack(">iih", answer)
    if (correlation_id, error_code) == (CORRELATION_ID, 0) and length >= 6:
        return Look(ListenerState.SERVES)
    return Look(ListenerState.STRANGE, f"its answer begins with {answer.decode('latin-1')!r}")


def _of_tls(error: ssl.SSLError) -> Look:
    reason = error.reason or str(error)
    if any(word in reason for word in _PLAIN):
        return Look(ListenerState.SPEAKS_PLAIN)
    if any(word in reason for word in _WANTS_CERTIFICATE):
        return Look(ListenerState.WANTS_CERTIFICATE)
    return Look(ListenerState.STRANGE, f"it ends the TLS handshake ({reason})")


async def _names(host: str, port: int, context: ssl.SSLContext) -> str:
    """Return the names in a certificate that is trusted, whatever they are."""
    context.check_hostname = False
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            shown = writer.get_extra_info("peercert") or {}
            writer.close()
    except (OSError, TimeoutError):
        return "others"
    finally:
        context.check_hostname = True
    return ", ".join(str(name) for _, name in shown.get("subjectAltName", ())) or "no host"


def listeners_of(broker: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the listeners of a broker, as the admin API has them."""
    only = {
        "name": "PLAINTEXT", "protocol": "PLAINTEXT", "host": broker["host"],
        "port": broker["port"], "is_advertised": True,
    }  # fmt: skip
    found: Sequence[Mapping[str, Any]] = broker.get("listeners") or [only]
    return found


def is_tls(listener: Mapping[str, Any]) -> bool:
    """Whether a listener's clients speak TLS."""
    return str(listener["protocol"]).endswith("SSL")


def check_listeners(
    broker: Mapping[str, Any], looks: Mapping[str, Look], *, has_settings: bool
) -> list[Finding]:
    """Say what clients find at each listener of a broker, by its name.

    `has_settings`: whether TLS was tried with a client's own settings.
    """
    is_reached = any(one.state is ListenerState.SERVES for one in looks.values())
    is_elsewhere = not is_loopback(urlsplit(broker["admin_url"] or "").hostname or "localhost")
    return [
        _check(broker["broker_id"], one, looks[one["name"]], is_reached, is_elsewhere, has_settings)
        for one in listeners_of(broker)
    ]


def _check(
    broker: int,
    listener: Mapping[str, Any],
    seen: Look,
    is_reached: bool,
    is_elsewhere: bool,
    has_settings: bool,
) -> Finding:
    name, at = listener["name"], f"{listener['host']}:{listener['port']}"
    setting = f"advertised_host (or {name} in security.advertised_listeners)"
    sent = f"broker {broker} sends clients of {name} to {at}"
    if is_elsewhere and seen.addresses and all(map(_is_own, seen.addresses)):
        return trouble(
            "reachable",
            f"{sent} ({', '.join(seen.addresses)}), which is their own machine",
            f"Set its {setting} to a name or address that leads there from other machines; look for"
            " a loopback line in /etc/hosts.",
        )
    if seen.state is ListenerState.SERVES:
        return fine("reachable", f"broker {broker} answers at {at}")
    what, advice = _MISTAKES[seen.state]
    words = {"host": listener["host"], "detail": seen.detail, "setting": setting}
    if seen.state in (ListenerState.UNRESOLVED, ListenerState.SILENT) and is_reached:
        return warning(
            "reachable",
            f"{sent}, {what.format(**words)}",
            "This is right if that listener is for clients elsewhere: another one answers"
            " from here. Otherwise: " + advice.format(**words),
        )
    make = warning if seen.state in _NEED_SETTINGS and not has_settings else trouble
    return make("reachable", f"{sent}, {what.format(**words)}", advice.format(**words))


def _is_own(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


_NEED_SETTINGS: Final = (ListenerState.UNTRUSTED, ListenerState.WANTS_CERTIFICATE)
_MISTAKES: Final[Mapping[ListenerState, tuple[str, str]]] = {
    ListenerState.UNRESOLVED: (
        "a name that does not resolve here ({detail})",
        "Set its {setting} to a name or address that clients can use, or have the name in DNS.",
    ),
    ListenerState.SILENT: (
        "where nobody answers from here ({detail})",
        "Correct its {setting} and port, or open the port in between.",
    ),
    ListenerState.STRANGE: (
        "where something else than a Kafka broker answers: {detail}",
        "Correct the port in its {setting}, or look what a load balancer does with it.",
    ),
    ListenerState.WANTS_TLS: (
        "where TLS is spoken, although that listener is one of plain text",
        "Correct the port in its {setting}: it leads to another listener, or to a proxy.",
    ),
    ListenerState.SPEAKS_PLAIN: (
        "where plain text is spoken, although that listener is one of TLS",
        "Correct the port in its {setting}: it leads to another listener, or a proxy ends TLS.",
    ),
    ListenerState.WRONG_NAME: (
        "whose certificate is for {detail}: clients refuse it",
        "Have {host} among the certificate's names (`quire certificates`), or set its {setting} to"
        " one of those.",
    ),
    ListenerState.UNTRUSTED: (
        "whose certificate is not trusted here ({detail})",
        "Name the client's settings, with ssl.ca.location (--client-config), or renew it.",
    ),
    ListenerState.WANTS_CERTIFICATE: (
        "where the connection ends behind the TLS handshake: clients have to show a certificate",
        "Name the client's settings, with ssl.certificate.location (--client-config).",
    ),
}

"""Asking a bookie's admin server, as commands do: one sentence when that is impossible.

The paths are in `bookie/admin/server.py`.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from client.errors import ConfigError, QuireError
from client.ledger.bookies.bookie_directory import Address, ServiceInfo
from client.security.admin_access import may_carry_token
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_OK: Final = 200
_NOT_ALLOWED: Final = (401, 403)


class BookieAccess(NamedTuple):
    """How to convince a bookie's admin server."""

    token: str = ""
    authority: Path | None = None
    """PEM file with the authority of its certificate, if neither `security` nor this machine has
    it."""
    security: ClusterSecurity = OPEN_CLUSTER
    """How its other port is reached: whom to trust, and which certificate to show."""

    def context(self) -> ssl.SSLContext:
        """Return the context of a connection. Raises ConfigError."""
        context = self.security.contexts().get()
        if self.authority is not None:
            try:
                context.load_verify_locations(self.authority)
            except OSError as error:
                raise ConfigError(
                    f"cannot use the certificates in {self.authority}: {error}"
                ) from error
        return context


class BookieRefused(QuireError):
    """The bookie understood and said no."""


async def ask(
    bookie_id: str,
    info: ServiceInfo,
    method: str,
    path: str,
    body: Any = None,
    *,
    access: BookieAccess | None = None,
) -> Any:
    """Return a bookie's answer, parsed if it is JSON. Raises QuireError."""
    address = info.http
    if address is None:
        raise QuireError(f"bookie {bookie_id} has no admin server: start it with --admin-port PORT")
    access = access or BookieAccess()
    is_private = may_carry_token(info.http_scheme, address.host)
    headers = {"Authorization": f"Bearer {access.token}"} if access.token and is_private else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers) as session,
            session.request(
                method, f"{info.admin_url}{path}", json=body, ssl=access.context()
            ) as answer,
        ):
            if answer.status != _OK:
                text = (await answer.text()).strip() or f"HTTP status {answer.status}"
                if answer.status in _NOT_ALLOWED and access.token and not is_private:
                    text += " (It has no TLS, so your token was not sent.)"
                raise BookieRefused(f"bookie {bookie_id} says: {text}")
            if answer.content_type == "application/json":
                return await answer.json()
            return await answer.text()
    except aiohttp.ClientSSLError as error:
        raise QuireError(
            f"the certificate of bookie {bookie_id} at {_shown(address)} is not good: {error};"
            " name its authority with --admin-ca, or in the file of --cluster-config"
        ) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise QuireError(
            f"the admin server of bookie {bookie_id} does not answer at {_shown(address)}: it"
            " listens on --admin-host, by default for its own machine alone"
        ) from error


def _shown(address: Address) -> str:
    return f"{address.host}:{address.port}"

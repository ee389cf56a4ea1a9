"""Asking a bookie's admin server, as commands do: one sentence when that is impossible.

The paths are in `bookie/admin/server.py`.
"""

from __future__ import annotations

from typing import Any, Final

import aiohttp

from client.errors import QuireError
from client.ledger.bookies.bookie_directory import Address, ServiceInfo

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_OK: Final = 200


class BookieRefused(QuireError):
    """The bookie understood and said no."""


async def ask(bookie_id: str, info: ServiceInfo, method: str, path: str, body: Any = None) -> Any:
    """Return a bookie's answer, parsed if it is JSON. Raises QuireError."""
    address = info.http
    if address is None:
        raise QuireError(f"bookie {bookie_id} has no admin server: start it with --admin-port PORT")
    url = f"http://{address.host}:{address.port}{path}"
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.request(method, url, json=body) as answer,
        ):
            if answer.status != _OK:
                text = (await answer.text()).strip() or f"HTTP status {answer.status}"
                raise BookieRefused(f"bookie {bookie_id} says: {text}")
            if answer.content_type == "application/json":
                return await answer.json()
            return await answer.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise QuireError(
            f"the admin server of bookie {bookie_id} does not answer at {_shown(address)}: it"
            " listens on --admin-host, by default for its own machine alone"
        ) from error


def _shown(address: Address) -> str:
    return f"{address.host}:{address.port}"

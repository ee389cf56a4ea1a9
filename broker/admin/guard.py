"""Decides who may use the admin API.

If there is a token, every request to the API must carry it; a second token, for dashboards and for
people who only look, allows GET alone. Without a token, whoever reaches the port may do everything,
so the port is on loopback unless configured otherwise, and no other site's page may send a browser
there: a request that changes something must not come from a page of another origin, and while
listening on loopback the broker answers to loopback names only, which defeats DNS rebinding.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from broker.admin.problems import Problem
from broker.admin.request import SAFE
from broker.config import BrokerConfig

_BEARER: Final = "Bearer "


class Guard:
    """Lets requests pass or raises `Problem`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._token = config.admin_token.encode()
        self._read_token = config.admin_read_token.encode()
        self._only_loopback = not self._token and is_loopback(config.admin_host)

    def check_browser(self, request: web.Request) -> None:
        """Refuse what a foreign web page may have sent."""
        host = request.headers.get("Host", "")
        if self._only_loopback and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            raise Problem(
                403, "foreign-host", f"this broker does not answer to the name {host!r}",
                "Use 127.0.0.1 or localhost, or set an admin_token.", field="Host",
            )  # fmt: skip
        origin = request.headers.get("Origin")
        if origin and request.method not in SAFE and urlsplit(origin).netloc != host:
            raise Problem(
                403, "foreign-origin", f"a page from {origin} may not change this cluster",
                "Use the page that this broker serves, or a command-line client.", field="Origin",
            )  # fmt: skip

    def check_token(self, request: web.Request) -> None:
        """Refuse a request without the token, if there is one."""
        if not self._token:
            return
        given = request.headers.get("Authorization", "")
        if not given.startswith(_BEARER):
            raise Problem(
                401, "no-token", "this API needs a token",
                "Send the header `Authorization: Bearer TOKEN` with the broker's admin_token.",
                field="Authorization",
            )  # fmt: skip
        token = given.removeprefix(_BEARER).encode("utf-8", "surrogateescape")
        if hmac.compare_digest(token, self._token):
            return
        if not self._read_token or not hmac.compare_digest(token, self._read_token):
            raise Problem(
                401, "wrong-token", "the token is wrong",
                "Send the broker's admin_token.", field="Authorization",
            )  # fmt: skip
        if request.method not in SAFE:
            raise Problem(
                403, "read-only-token", "this token is read-only",
                "Send the broker's admin_token.", field="Authorization",
            )  # fmt: skip


def is_loopback(host: str) -> bool:
    """Say whether a host name or address can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

"""The brokers' admin API, as commands use it.

Covers HTTP requests to brokers. One of several addresses is enough: any broker answers for the
whole cluster, and while one restarts the next one is asked. What a broker answers with as a
problem becomes an `AdminError` with the broker's own sentences.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from client.errors import ConfigError
from client.security.admin_access import Teller, is_loopback, may_carry_token
from ops.admin_errors import AdminError, AdminUnreachable

PREFIX: Final = "/admin/v1"
ADMIN_URL: Final = "http://127.0.0.1:9640"
"""Where the first broker of a local cluster has its admin API."""
TIMEOUT_S: Final = 65.0
"""A little longer than brokers wait for each other."""
PATIENCE_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 3.0
_PAUSE_S: Final = 0.2
_NODE_TIMEOUT_S: Final = 2.0
_PAGE: Final = 1_000

_HINTS: Final[Mapping[str, str]] = {
    "unknown-topic-or-partition": "`quire topic list` shows what there is.",
    "unknown-group": "`quire group list` shows what there is.",
    "unknown-broker": "`quire broker list` shows who is there.",
    "invalid-setting": "`quire topic config NAME` shows every setting.",
    "offset-out-of-range": "`quire topic partitions NAME` shows first and last offsets.",
    "no-such-record": "`quire topic partitions NAME` shows first and last offsets.",
}
"""By problem: what a person with this command does instead of another HTTP request."""


class Access(NamedTuple):
    """How to reach and convince the admin API."""

    urls: tuple[str, ...] = (ADMIN_URL,)
    token: str = ""
    authority: Path | None = None
    """PEM file with the authority of the brokers' certificates, if this machine lacks it."""
    timeout_s: float = TIMEOUT_S
    patience_s: float = PATIENCE_S
    """For how long to repeat what brokers cannot do yet, while partitions are being opened."""
    teller: Teller | None = None
    """None: the operator named `urls`, and the token goes there. What a broker told gets it by TLS
    only, or on this machine, and if it can only be the cluster's."""

    def withholds_token_from(self, url: URL) -> str:
        """Return why the token may not go to an address; "" if it may."""
        host = url.host or ""
        if not self.token or self.teller is None or is_loopback(host):
            return ""
        if not may_carry_token(url.scheme, host):
            return "your token would be readable on the way: it is not https"
        if self.teller.is_proven or self.authority is not None or host in self.teller.hosts:
            return ""
        return "nothing proves that a broker told this address, so your token is not sent there"


class AdminApi:
    """A client; use it with `async with`."""

    def __init__(self, access: Access) -> None:
        """Raises ConfigError for addresses that are none."""
        self._urls = [_origin(url) for url in access.urls]
        self._withheld = {url: access.withholds_token_from(url) for url in self._urls}
        self._token = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        self._authority = access.authority
        self._timeout_s = access.timeout_s
        self._patience_s = access.patience_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> AdminApi:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=_trust(self._authority)),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
            headers=self._token,
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def metrics_of(self, url: str) -> tuple[str, str | None]:
        """Return what a node's /metrics has, and the date that it tells; "" if it is not for us.

        `url`: its HTTP port. The token is sent where nobody else hears it. Raises aiohttp's errors,
        OSError, TimeoutError.
        """
        assert self._session is not None, "use `async with`"
        where = URL(url) / "metrics"
        options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=_NODE_TIMEOUT_S)}
        if not may_carry_token(where.scheme, where.host or ""):
            options["headers"] = {"Authorization": ""}
        try:
            answer = await self._session.get(where, **options)
        except aiohttp.ClientConnectorCertificateError:
            # Version and clock are worth knowing of a node that we do not trust, too.
            options["headers"] = {"Authorization": ""}
            answer = await self._session.get(where, ssl=False, **options)
        async with answer:
            text = await answer.text() if answer.status == HTTPStatus.OK else ""
            return text, answer.headers.get("Date")

    async def get(self, path: str, **query: object) -> Any:
        """GET a path below the prefix; query values that are None are left out."""
        return await self.send("GET", path, query=query)

    async def items(self, path: str, **query: object) -> AsyncIterator[Any]:
        """Yield the items of a list, page by page."""
        after: str | None = None
        while True:
            page = await self.get(path, limit=_PAGE, after=after, **query)
            for item in page["items"]:
                yield item
            after = page["next"]
            if after is None:
                return

    async def list(self, path: str, **query: object) -> Sequence[Any]:
        """Return all items of a list."""
        return [item async for item in self.items(path, **query)]

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        media_type: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """Send a request; return the JSON answer, bytes for other media types, None for none.

        Repeats what certainly was not done and may work in a moment. Raises AdminError,
        AdminUnreachable, also if the token may not go to any of the addresses.
        """
        deadline_s = time.monotonic() + self._patience_s
        while True:
            try:
                return await self._send_once(method, path, body, query, media_type, accept)
            except AdminError as error:
                if not error.may_be_repeated or time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _send_once(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, object] | None,
        media_type: str,
        accept: str,
    ) -> Any:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Accept": accept}
        if content is not None:
            headers["Content-Type"] = media_type
        given = {name: _word(value) for name, value in (query or {}).items() if value is not None}
        refusals = []
        for origin in self._urls:
            if self._withheld[origin]:
                refusals.append(f"{origin} ({self._withheld[origin]}; if it is right, --admin URL)")
                continue
            url = URL(str(origin) + PREFIX + path, encoded=True).update_query(given)
            try:
                return await self._exchange(method, url, content, headers)
            except aiohttp.ClientConnectorError as error:
                refusals.append(f"{origin} ({_reason(error)})")
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                why = str(error) or "no answer in time"
                if method == "POST":
                    raise AdminUnreachable(
                        f"{origin} broke off ({why}): the request may have been carried out;"
                        " check before you try again"
                    ) from error
                refusals.append(f"{origin} ({why})")
        raise AdminUnreachable(f"no broker's admin API answers at {', '.join(refusals)}")

    async def _exchange(
        self, method: str, url: URL, content: bytes | None, headers: Mapping[str, str]
    ) -> Any:
        assert self._session is not None, "use `async with`"
        async with self._session.request(
            method, url, data=content, headers=headers, allow_redirects=False
        ) as answer:
            data = await answer.read()
            if answer.status >= 300:
                raise _problem(answer.status, data)
            if not data:
                return None
            if answer.content_type == "application/json":
                return json.loads(data)
            return data


def _origin(url: str) -> URL:
    try:
        parsed = URL(url if "://" in url else f"http://{url}")
        if parsed.scheme in ("http", "https") and parsed.host:
            return parsed.origin()
    except ValueError:
        pass
    raise ConfigError(f"{url!r} is not the address of an admin API, which looks like {ADMIN_URL}")


def _trust(authority: Path | None) -> ssl.SSLContext | bool:
    if authority is None:
        return True
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificates in {authority}: {error}") from error


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return f"{error}; is it https, and is its authority known (--admin-ca)?"
    number = error.os_error.errno
    return os.strerror(number) if number else str(error.os_error) or "cannot connect"


def _problem(status: int, data: bytes) -> AdminError:
    """Make an error of a problem document; whatever else answers is quoted."""
    try:
        told = json.loads(data)
        detail, hint = str(told["detail"]), str(told.get("hint", ""))
        name = str(told.get("type", "")).rpartition(":")[2]
    except (ValueError, KeyError, TypeError):
        text = data[:200].decode("utf-8", "replace").strip()
        return AdminError(f"HTTP status {status}: {text}", status=status, problem="")
    hint = _HINTS.get(name, hint)
    return AdminError(
        f"{detail}. {hint}".strip(),
        status=status,
        problem=name,
        may_be_repeated=bool(told.get("retriable")) and not told.get("may_have_happened"),
    )

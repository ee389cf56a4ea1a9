"""Sends admin requests to other brokers, so that any broker can answer for the whole cluster.

A request that only another broker can answer is forwarded as it came; what every broker knows a
part of is asked of each. Such a request names the broker it is meant for, with its incarnation,
because on every machine a loopback address leads to the machine itself; a broker that is not the
one named answers 421. A request is never forwarded twice.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from broker.admin.problems import Problem
from broker.admin.request import PREFIX
from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo
from broker.config import BrokerConfig
from client.ids import BrokerId
from client.node.http_guard import SAFE
from client.security.tls_contexts import FreshContext, client_context, load_chain

FOR_HEADER: Final = "Quire-For"
"""On a request between brokers: `id/incarnation` of the one that must answer."""

CALLER_HEADER: Final = "Quire-Caller"
"""On a request that is forwarded: the name of whoever sent it."""
PEER_HEADER: Final = "Quire-Caller-Address"
"""The same, the address."""

_FORWARD_TIMEOUT_S: Final = 60.0
_ASK_TIMEOUT_S: Final = 3.0
"""A broker that hangs must not make every answer of the others hang, too."""
_BOOKIE_TIMEOUT_S: Final = 1.0
_PASSED_BACK: Final = ("Content-Type", "Location", "Retry-After", "Quire-Offset")


class Reply(NamedTuple):
    """Another broker's answer, as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class PeerAnswers(NamedTuple):
    """What the other brokers answered."""

    answers: Mapping[BrokerId, Any]
    silent: Mapping[BrokerId, str]
    """Those that could not be reached, and why."""


def name_of(broker: BrokerInfo) -> str:
    """Return what stands in `FOR_HEADER` for a broker."""
    return f"{broker.id}/{broker.incarnation}"


class PeerClient:
    """Asks other brokers. `start` before use, `close` after it."""

    def __init__(self, config: BrokerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        token = config.admin_token
        self._token = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._contexts: FreshContext[ssl.SSLContext] | None = None

    async def start(self) -> None:
        """Get ready. Raises ConfigError (unreadable certificates)."""
        config = self._config
        files = config.admin_tls_ca, config.admin_tls_cert, config.admin_tls_key
        self._contexts = FreshContext(files, lambda: _context(config))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ttl_dns_cache=10), auto_decompress=False
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(
        self, broker: BrokerInfo, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        """Send a request as it came, `target` being its raw path and query. Raises Problem."""
        reply = await self._send(
            broker, method, target, headers=headers, body=body, timeout_s=_FORWARD_TIMEOUT_S
        )
        kept = {name: reply.headers[name] for name in _PASSED_BACK if name in reply.headers}
        return reply._replace(headers=kept)

    async def ask(
        self, broker: BrokerInfo, path: str, query: Mapping[str, str] | None = None,
        *, body: Any = None, timeout_s: float = _ASK_TIMEOUT_S,
    ) -> Any:  # fmt: skip
        """GET (with a body: POST) a path below the API's prefix; return the JSON answer.

        Raises Problem, also for whatever problem the other broker answers with.
        """
        target = str(URL(PREFIX + path, encoded=True).with_query(query or {}))
        reply = await self._send(
            broker,
            "GET" if body is None else "POST",
            target,
            headers={"Accept": "application/json", "Content-Type": "application/json"},
            body=b"" if body is None else json.dumps(body).encode(),
            timeout_s=timeout_s,
        )
        try:
            answer = json.loads(reply.body)
        except ValueError as error:
            raise _unreachable(broker, "its answer is not JSON") from error
        if reply.status >= 300:
            problem = Problem(
                reply.status,
                str(answer.get("type", "")).rpartition(":")[2],
                f"broker {broker.id}: {answer.get('detail')}",
                str(answer.get("hint")),
                may_have_happened=bool(answer.get("may_have_happened")),
            )
            problem.may_work_later = bool(answer.get("retriable"))
            raise problem
        return answer

    async def ask_all(
        self,
        path_of: Callable[[BrokerInfo], str],
        query: Mapping[str, str] | None = None,
    ) -> PeerAnswers:
        """Ask every other live broker, each for a path of its own."""
        others = [one for one in self._cluster.brokers.values() if one.id != self._config.node_id]
        replies = await asyncio.gather(
            *(self.ask(one, path_of(one), query) for one in others), return_exceptions=True
        )
        answers: dict[BrokerId, Any] = {}
        silent: dict[BrokerId, str] = {}
        for broker, reply in zip(others, replies, strict=True):
            if isinstance(reply, Problem):
                silent[broker.id] = str(reply)
            elif isinstance(reply, BaseException):
                raise reply
            else:
                answers[broker.id] = reply
        return PeerAnswers(answers, silent)

    async def ask_bookie(self, url: str) -> dict[str, Any] | None:
        """GET a JSON object from a bookie's admin server; None if it does not answer.

        It gets a token of ours by TLS only, and the one for looking if there is one.
        """
        assert self._session is not None and self._contexts is not None, "not started"
        where = URL(url)
        token = self._config.admin_read_token or self._config.admin_token
        is_sent = bool(token) and where.scheme == "https"
        try:
            async with self._session.get(
                where,
                headers={"Authorization": f"Bearer {token}"} if is_sent else {},
                ssl=self._contexts.get(),
                timeout=aiohttp.ClientTimeout(total=_BOOKIE_TIMEOUT_S),
            ) as answer:
                body = await answer.json(content_type=None) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return None
        return body if isinstance(body, dict) else None

    async def _send(
        self,
        broker: BrokerInfo,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
    ) -> Reply:
        assert self._session is not None and self._contexts is not None, "not started"
        if not broker.admin_url:
            raise _unreachable(broker, "it has no admin API")
        try:
            async with self._session.request(
                method,
                URL(broker.admin_url + target, encoded=True),
                headers={**headers, **self._token, FOR_HEADER: name_of(broker)},
                data=body or None,
                ssl=self._contexts.get(),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as answer:
                if answer.status == 421:
                    raise _unreachable(broker, f"a different broker listens at {broker.admin_url}")
                return Reply(answer.status, answer.headers, await answer.read())
        except TimeoutError as error:
            raise Problem(
                504, "broker-silent", f"broker {broker.id} at {broker.admin_url} does not answer",
                "It may have been carried out: check before you try again.",
                may_have_happened=method not in SAFE,
            ) from error  # fmt: skip
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(broker, f"{broker.admin_url}: {error}") from error


def _unreachable(broker: BrokerInfo, why: str) -> Problem:
    return Problem(
        502, "broker-unreachable", f"broker {broker.id} cannot be reached: {why}",
        "Check that broker; its admin_host must be an address that other brokers can reach.",
    )  # fmt: skip


def _context(config: BrokerConfig) -> ssl.SSLContext:
    """Return whom to trust, and which certificate to show. Raises ConfigError."""
    ca = None if config.admin_tls_ca is None else ("tls_ca", config.admin_tls_ca)
    context = client_context("admin_", ca, version_min="1.2")
    if config.admin_tls_cert is not None:
        load_chain(context, "admin_", config.admin_tls_cert, config.admin_tls_key)
    return context

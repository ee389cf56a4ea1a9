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
from broker.admin.request import PREFIX, SAFE
from broker.cluster.cluster import Cluster
from broker.cluster.core.topology import BrokerInfo
from broker.config import BrokerConfig
from client.errors import ConfigError
from client.ids import BrokerId

FOR_HEADER: Final = "Quire-For"
"""On a request between brokers: `id/incarnation` of the one that must answer."""

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
    """Those that could not be asked, and why."""


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

    async def start(self) -> None:
        """Get ready. Raises ConfigError (unreadable `admin_tls_ca`)."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=_tls(self._config), ttl_dns_cache=10),
            auto_decompress=False,
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
        """GET a JSON object from a bookie's admin server; None if it does not answer."""
        assert self._session is not None, "not started"
        timeout = aiohttp.ClientTimeout(total=_BOOKIE_TIMEOUT_S)
        try:
            async with self._session.get(URL(url), timeout=timeout) as answer:
                body = await answer.json(content_type=None)
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
        assert self._session is not None, "not started"
        if not broker.admin_url:
            raise _unreachable(broker, "it has no admin API")
        try:
            async with self._session.request(
                method,
                URL(broker.admin_url + target, encoded=True),
                headers={**headers, **self._token, FOR_HEADER: name_of(broker)},
                data=body or None,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as answer:
                if answer.status == 421:
                    raise _unreachable(broker, f"a different broker listens at {broker.admin_url}")
                return Reply(answer.status, answer.headers, await answer.read())
        except TimeoutError as error:
            raise Problem(
                504, "broker-silent", f"broker {broker.id} at {broker.admin_url} does not answer",
                "It may have been done anyway: check before you try again.",
                may_have_happened=method not in SAFE,
            ) from error  # fmt: skip
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(broker, f"{broker.admin_url}: {error}") from error


def _unreachable(broker: BrokerInfo, why: str) -> Problem:
    return Problem(
        502, "broker-unreachable", f"broker {broker.id} cannot be asked: {why}",
        "Check that broker; its admin_host must be an address that other brokers reach.",
    )  # fmt: skip


def _tls(config: BrokerConfig) -> ssl.SSLContext | bool:
    """Return whom to trust; True: whom this machine trusts."""
    if config.admin_tls_ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=config.admin_tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"admin_tls_ca {config.admin_tls_ca}: {error}") from error

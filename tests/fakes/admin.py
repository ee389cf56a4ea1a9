"""Brokers with their admin APIs, in the test's process, and a client of them."""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp

from broker.admin.server import AdminServer
from broker.app import Broker
from tests.fakes.broker import CONFIG, FakeCloud, until


class Answered(NamedTuple):
    """An HTTP answer."""

    status: int
    body: Any
    """Decoded, if it is JSON; else bytes."""
    headers: Any


class AdminCloud:
    """Brokers 1 to `count`, each with an admin API; an asynchronous context manager."""

    def __init__(self, count: int = 1, **settings: Any) -> None:
        self.cloud = FakeCloud()
        self.admins: dict[int, AdminServer] = {}
        self.brokers: dict[int, Broker] = self.cloud.brokers
        self._count = count
        self._settings = {"admin_port": 0, **settings}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        try:
            for number in range(1, self._count + 1):
                await self.start_broker(number)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()
        await self.cloud.close()
        for admin in self.admins.values():
            await admin.close()

    async def start_broker(self, number: int, **settings: Any) -> Broker:
        """Start one more broker with its admin API."""

        async def serve(broker: Broker) -> str:
            config = dataclasses.replace(CONFIG, node_id=broker.config.node_id, **known)
            admin = AdminServer(config, broker)
            await admin.start()
            self.admins[number] = admin
            return admin.url

        known = {**self._settings, **settings}
        return await self.cloud.start_broker(number, serve_admin=serve, **known)

    async def ask(
        self, method: str, path: str, *, at: int = 1, status: int | None = None, **options: Any
    ) -> Answered:
        """Send a request to a broker's API, with `aiohttp`'s options; check the status."""
        url = self.admins[at].url + path
        async with self._session.request(method, url, **options) as answer:
            raw = await answer.read()
            is_json = answer.content_type.endswith("json")
            body = await answer.json(content_type=None) if is_json else raw
            if status is not None:
                assert answer.status == status, (answer.status, body)
            return Answered(answer.status, body, answer.headers)

    async def get(self, path: str, *, at: int = 1, status: int = 200, **options: Any) -> Any:
        """GET a path below /admin/v1 and return its body."""
        return (await self.ask("GET", "/admin/v1" + path, at=at, status=status, **options)).body

    async def send(
        self, method: str, path: str, body: Any = None, *, at: int = 1, status: int = 200
    ) -> Any:
        """Change something below /admin/v1 and return the answer's body."""
        options = {} if body is None else {"json": body}
        return (await self.ask(method, "/admin/v1" + path, at=at, status=status, **options)).body

    async def led(self, topic: str) -> None:
        """Wait until every partition of a topic is led."""
        await until(lambda: self._is_led(topic))

    def _is_led(self, topic: str) -> bool:
        brokers = self.brokers.values()
        return all(topic in broker.cluster.topics for broker in brokers) and all(
            any(broker.partitions.find(topic, index) for broker in brokers)
            for index in range(next(iter(brokers)).cluster.topics[topic].partition_count)
        )


__all__ = ["AdminCloud", "Answered", "until"]

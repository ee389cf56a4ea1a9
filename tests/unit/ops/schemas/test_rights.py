"""Every path of a registry with every role, by the table of rights."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from client.pubsub.brokers import Brokers
from client.security.admin_access import Role
from ops.schemas.config import SchemasConfig
from ops.schemas.core.errors import RegistryError
from ops.schemas.kinds import protoc
from ops.schemas.program import LOOKS_MAX, SchemaServer
from ops.schemas.rights import RIGHTS
from ops.schemas.service import SchemaService
from tests.fakes import made_certificates as certificates
from tests.fakes.broker import until

TOKENS = {
    Role.LOOK: "a-token-for-looking",
    Role.OPERATE: "a-token-for-operating",
    Role.ADMINISTER: "a-token-for-all",
}


class Registry:
    """The HTTP server of a registry that has never heard of its brokers."""

    def __init__(self, folder: Path) -> None:
        file = folder / "tokens"
        file.write_text(f"operate operate {TOKENS[Role.OPERATE]}\n")
        config = SchemasConfig(
            admin_token=TOKENS[Role.ADMINISTER],
            admin_read_token=TOKENS[Role.LOOK],
            admin_tokens_file=file,
            **certificates.port_settings(folder, "node"),
        )
        self.server = SchemaServer(config, Brokers("127.0.0.1:1"))
        self.tls = certificates.client(folder)

    async def start(self) -> None:
        runner = self.server._runner
        await runner.setup()
        doors = self.server._doors
        self.port = await doors.listen(runner, "127.0.0.1", 0, self.server.guard.tls)

    async def ask(
        self, route: str, authorization: str = "", **options: Any
    ) -> tuple[int, int | None]:
        """Return the status, and the code of an error."""
        method, path = re.sub(r"{\w+}", "1", route).split()
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"https://127.0.0.1:{self.port}{path}", ssl=self.tls,
                headers={"Authorization": authorization}, **options,
            ) as answer,
        ):  # fmt: skip
            is_json = "json" in answer.content_type
            body = await answer.json(content_type=None) if is_json else None
            return answer.status, body.get("error_code") if isinstance(body, dict) else None


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    certificates.make(tmp_path, "node")
    made = Registry(tmp_path)
    await made.start()
    yield made
    made.server._doors.close()
    await made.server._runner.cleanup()


def test_the_table_has_every_path_and_nothing_else() -> None:
    server = SchemaServer(SchemasConfig(), Brokers("127.0.0.1:1"))
    routes = {
        f"{route.method} {route.resource.canonical}"
        for route in server._runner.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes == set(RIGHTS)


async def test_every_path_with_every_role(registry: Registry) -> None:
    for route, needed in RIGHTS.items():
        is_open = not isinstance(needed, Role)
        found = await registry.ask(route)
        assert found == (401, 40101) or is_open, (route, found)
        for role, token in TOKENS.items():
            if route in ("POST /subjects/{subject}/versions",) and role >= needed:
                continue  # it would ask the brokers
            found = await registry.ask(route, f"Bearer {token}")
            may = is_open or role >= needed
            assert (found[0] == 403) is not may, (route, role, found)
            assert may or found[1] == 40301


async def test_clients_may_send_the_token_as_the_password_of_a_basic_login(
    registry: Registry,
) -> None:
    for password, status in ((TOKENS[Role.LOOK], 200), ("wrong", 401)):
        words = base64.b64encode(f"anybody:{password}".encode()).decode()
        assert (await registry.ask("GET /subjects", f"Basic {words}"))[0] == status


async def test_any_number_of_lookers_leaves_room_to_register(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would have a schema compiled, which may take 20 s."""
    waits, looking = asyncio.Event(), 0

    async def slow(*_: object, **__: object) -> None:
        nonlocal looking
        looking += 1
        await waits.wait()
        raise RegistryError(404, "no")

    async def quick(*_: object, **__: object) -> None:
        raise RegistryError(409, "no")

    monkeypatch.setattr(SchemaService, "lookup", slow)
    monkeypatch.setattr(SchemaService, "register", quick)
    look, operate = (f"Bearer {TOKENS[role]}" for role in (Role.LOOK, Role.OPERATE))
    body = {"schema": '"int"'}
    lookers = [
        asyncio.create_task(registry.ask("POST /subjects/s", look, json=body)) for _ in range(20)
    ]
    await until(lambda: looking == LOOKS_MAX)
    assert (await registry.ask("POST /subjects/s/versions", operate, json=body))[0] == 409
    assert (await registry.ask("GET /subjects", look))[0] == 200, "what compiles nothing goes on"
    assert looking == LOOKS_MAX
    waits.set()
    assert {status for status, _ in await asyncio.gather(*lookers)} == {404}
    assert LOOKS_MAX < protoc._PROCESSES_MAX


async def test_changes_are_noted_with_who_asked(
    registry: Registry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change(*_: object, **__: object) -> list[int]:
        return [1]

    monkeypatch.setattr(SchemaService, "delete_subject", change)
    caplog.set_level(logging.INFO, "security")
    await registry.ask("GET /subjects", f"Bearer {TOKENS[Role.ADMINISTER]}")
    await registry.ask("POST /subjects/{subject}", f"Bearer {TOKENS[Role.LOOK]}")
    assert "admin.done" not in caplog.text
    await registry.ask("DELETE /subjects/{subject}", f"Bearer {TOKENS[Role.ADMINISTER]}")
    assert "admin.done operation=DELETE path=/subjects/1" in caplog.text
    assert "user='admin_token'" in caplog.text

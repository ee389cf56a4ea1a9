"""Every path of a registry with every role, by the table of rights."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from client.pubsub.brokers import Brokers
from client.security.admin_access import Role
from ops.schemas.config import SchemasConfig
from ops.schemas.program import SchemaServer
from ops.schemas.rights import RIGHTS
from tests.fakes import made_certificates as certificates

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

    async def ask(self, route: str, authorization: str = "") -> tuple[int, int | None]:
        """Return the status, and the code of an error."""
        method, path = re.sub(r"{\w+}", "1", route).split()
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"https://127.0.0.1:{self.port}{path}", ssl=self.tls,
                headers={"Authorization": authorization},
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

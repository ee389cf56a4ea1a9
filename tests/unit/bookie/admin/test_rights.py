"""Every path of a bookie's HTTP server with every role, by the table of rights."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bookie.access_config import AccessConfig
from bookie.admin.cluster import ClusterAdmin
from bookie.admin.server import RIGHTS, AdminServer, BookieStatus
from bookie.config import BookieConfig
from bookie.metrics import BookieMetrics
from client.errors import ConfigError, QuireError
from client.ids import BookieId
from client.ledger.bookies.bookie_directory import parse_service_info
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.node.http_guard import METRICS
from client.security.admin_access import Role
from client.security.cluster_security import ClusterSecurity
from ops.bookie_http import BookieAccess, BookieRefused, ask
from tests.fakes import made_certificates as certificates
from tests.fakes.bookie_box import FixedClock
from tests.unit.bookie.test_bookie import Machine

TOKENS = {Role.LOOK: "a-token-for-looking", Role.OPERATE: "a-token-for-operating"}
ALL = {**TOKENS, Role.ADMINISTER: "a-token-for-all"}


def closed(folder: Path) -> dict[str, Any]:
    """Return settings of an HTTP port with three tokens and TLS."""
    file = folder / "tokens"
    file.write_text("".join(f"{role.word} {role.word} {t}\n" for role, t in TOKENS.items()))
    return {
        "admin_token": ALL[Role.ADMINISTER],
        "admin_tokens_file": file,
        **certificates.port_settings(folder, "node"),
        "admin_tls_client_ca": folder / "ca.pem",
        "admin_tls_principal_rules": "RULE:^CN=([^,]+).*$/$1/",
        "admin_principals": ("broker:look",),
    }


class Port:
    """A bookie's HTTP server that has no bookie behind: what passes the guard fails later."""

    def __init__(self, config: BookieConfig) -> None:
        cluster = ClusterAdmin(
            MemoryCluster().session(), me=BookieId("b1"), root=paths.LEDGERS_ROOT,
            clock=FixedClock(), rng=random.Random(1),
        )  # fmt: skip
        status = BookieStatus(is_ready=False, is_stopping=False, is_failed=False, serving=None)
        metrics = BookieMetrics()
        self.server = AdminServer(config, metrics, lambda: status, cluster.routes())
        self.scheme = self.server.guard.scheme

    async def __aenter__(self) -> Port:
        self.port = await self.server.start("127.0.0.1", 0)
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self.server.stop()

    async def status(self, route: str, token: str | None, **options: Any) -> int:
        """Ask; return the status."""
        method, path = route.split()
        url = f"{self.scheme}://127.0.0.1:{self.port}{path}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self._session.request(method, url, headers=headers, **options) as answer:
            return answer.status


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    certificates.make(made, "node", "broker")
    return made


def config(**settings: Any) -> BookieConfig:
    return BookieConfig(data_dir=Path("/data"), admin_port=0, **settings)


async def test_the_table_has_every_path_and_nothing_else() -> None:
    async with Port(config()) as port:
        routes = {
            f"{route.method} {route.resource.canonical}"
            for route in port.server._runner.app.router.routes()
            if route.resource is not None and route.method != "HEAD"
        }
    assert routes == set(RIGHTS)


async def test_every_path_with_every_role(folder: Path) -> None:
    tls = certificates.client(folder)
    async with Port(config(**closed(folder))) as port:
        for route, needed in RIGHTS.items():
            is_open = needed is None
            needed = Role.LOOK if needed == METRICS else needed
            found = await port.status(route, None, ssl=tls)
            assert (found == 401) is not is_open, route
            for role, token in ALL.items():
                found = await port.status(route, token, ssl=tls)
                assert found != 401, route
                may = is_open or role >= needed
                assert (found == 403) is not may, (route, role, found)


async def test_a_certificate_is_as_good_as_a_token(folder: Path) -> None:
    async with Port(config(**closed(folder))) as port:
        broker, nobody = certificates.client(folder, "broker"), certificates.client(folder, "node")
        assert await port.status("GET /api/v1/bookie/list_bookies", None, ssl=broker) != 401
        assert await port.status("PUT /api/v1/bookie/gc", None, ssl=broker) == 403
        assert await port.status("GET /api/v1/bookie/state", None, ssl=nobody) == 401


async def test_its_registration_says_https_and_commands_reach_it(folder: Path) -> None:
    machine = Machine()
    bookie = await machine.start(admin_port=0, **closed(folder))
    try:
        node = await machine.store.get(paths.available_bookie(BookieId("b1")))
        info = parse_service_info(BookieId("b1"), node.data)
        assert info.admin_url == f"https://127.0.0.1:{bookie.admin_port}"
        path = "/api/v1/bookie/gc"
        access = BookieAccess(ALL[Role.OPERATE], folder / "ca.pem")
        assert await ask("b1", info, "PUT", path, {}, access=access)
        with pytest.raises(BookieRefused, match="this needs role operate, and look has role look"):
            await ask("b1", info, "PUT", path, {}, access=access._replace(token=ALL[Role.LOOK]))
        with pytest.raises(BookieRefused, match="needs a token"):
            await ask("b1", info, "GET", path, access=BookieAccess("", folder / "ca.pem"))
        with pytest.raises(
            QuireError, match=r"certificate of bookie b1 .* is not good.*--admin-ca"
        ):
            await ask("b1", info, "GET", path, access=BookieAccess(ALL[Role.LOOK]))
        with pytest.raises(ConfigError, match="cannot use the certificates"):
            await ask("b1", info, "GET", path, access=BookieAccess("", folder / "tokens"))
    finally:
        await bookie.stop()


async def test_no_setting_that_is_a_secret_is_shown(folder: Path) -> None:
    machine = Machine()
    security = ClusterSecurity(zookeeper_user="quire", zookeeper_password="of zookeeper")
    bookie = await machine.start(admin_port=0, admin_token="of all", cluster_security=security)
    try:
        node = await machine.store.get(paths.available_bookie(BookieId("b1")))
        info = parse_service_info(BookieId("b1"), node.data)
        path = "/api/v1/config/server_config"
        found = await ask("b1", info, "GET", path, access=BookieAccess("of all"))
    finally:
        await bookie.stop()
    assert found["cluster_security.zookeeper_user"] == "quire"
    assert found["cluster_security.zookeeper_password"] == found["admin_token"] == "(hidden)"
    assert found["admin_read_token"] == ""
    assert "of " not in str({key: found[key] for key in found if "token" in key or "pass" in key})


async def test_a_change_is_logged_with_its_name(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with Port(config(**closed(folder))) as port:
        route = "PUT /api/v1/autorecovery/trigger_audit"
        tls = certificates.client(folder)
        await port.status(route, ALL[Role.OPERATE], ssl=tls)
        await port.status(route, ALL[Role.LOOK], ssl=tls)
    lines = [line for line in caplog.messages if line.startswith("admin.")]
    assert "user='operate'" in lines[0] and lines[0].startswith("admin.done")
    assert lines[1].startswith("admin.refused user='look'")
    assert not any(token in line for line in lines for token in ALL.values())


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1"])
def test_a_closed_bookie_does_not_start_with_an_open_admin_port(folder: Path, host: str) -> None:
    closed_bookie = {
        "access": AccessConfig(tls="required"),
        "cluster_security": ClusterSecurity(tls_cert=folder / "a", tls_key=folder / "b"),
    }
    with pytest.raises(ConfigError, match=r'access.tls "required" needs admin_token'):
        config(admin_host=host, **closed_bookie)
    config(admin_host=host, admin_token="t", **closed_bookie)
    config(**closed_bookie)

"""Who may use an HTTP port, asked over real sockets, with and without TLS."""

from __future__ import annotations

import asyncio
import base64
import datetime
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from client.errors import ConfigError
from client.node import http_connections
from client.node.http_connections import CLOSE_S, HttpConnections
from client.node.http_guard import (
    ANYBODY,
    CALLER,
    METRICS,
    HttpGuard,
    Rights,
    close_headers,
    with_sentences,
)
from client.security.admin_access import AdminAccess, Role
from client.security.failure_delays import WAITING_MAX
from ops.security.certificates import renew
from tests.fakes import made_certificates as certificates
from tests.fakes.broker import until

RIGHTS: Rights = {
    "GET /open": None,
    "GET /metrics": METRICS,
    "GET /look": Role.LOOK,
    "PUT /operate": Role.OPERATE,
    "DELETE /administer/{what}": Role.ADMINISTER,
}
PATHS = {
    Role.LOOK: ("GET", "/look"),
    Role.OPERATE: ("PUT", "/operate"),
    Role.ADMINISTER: ("DELETE", "/administer/all"),
}
LONG = "a-token-of-some-length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(AdminAccess):
    """A program's settings."""


class Port:
    """An HTTP port."""

    def __init__(
        self, access: AdminAccess, host: str = "127.0.0.1", headers: bool = False, **options: Any
    ) -> None:
        self.guard = HttpGuard(access, host, **options)
        self.doors = HttpConnections()
        app = web.Application(
            middlewares=[self.doors.watch, with_sentences, self.guard.by_table(RIGHTS)]
        )
        if headers:
            app.on_response_prepare.append(close_headers)
        for route in (*RIGHTS, "POST /forgotten"):
            app.router.add_route(*route.split(), self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=CLOSE_S)

    async def __aenter__(self) -> Port:
        await self._runner.setup()
        port = await self.doors.listen(self._runner, "127.0.0.1", 0, self.guard.tls)
        self.port = port
        return self

    async def __aexit__(self, *_: object) -> None:
        self.doors.close()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        caller = request.get(CALLER)
        return web.Response(text="" if caller is None else f"{caller.name} {caller.role.word}")

    async def ask(
        self, method: str, path: str, token: str | None = None, **options: Any
    ) -> tuple[int, str]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= options.pop("headers", {})
        url = f"{self.guard.scheme}://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, **options) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Port]:
    file = tmp_path / "tokens"
    file.write_text(f"anna operate {LONG}\n")
    access = Program(
        admin_token="all", admin_read_token="some", admin_tokens_file=file,
        admin_failure_delay_ms=0,
    )  # fmt: skip
    async with Port(access) as port:
        yield port


@pytest.mark.parametrize(
    ("token", "role"), [("some", Role.LOOK), (LONG, Role.OPERATE), ("all", Role.ADMINISTER)]
)
async def test_a_role_may_do_what_lower_ones_may(asking: Port, token: str, role: Role) -> None:
    for needed, (method, path) in PATHS.items():
        status, text = await asking.ask(method, path, token)
        assert status == (200 if role >= needed else 403), (needed, text)
        if role < needed:
            assert f"this needs role {needed.word}" in text
    assert (await asking.ask("POST", "/forgotten", token))[0] == (
        200 if role is Role.ADMINISTER else 403
    )


async def test_nothing_but_what_is_open_goes_without_a_token(asking: Port) -> None:
    assert (await asking.ask("GET", "/open"))[0] == 200
    assert (await asking.ask("GET", "/nowhere"))[0] == 404
    for method, path in (*PATHS.values(), ("POST", "/forgotten")):
        for token in (None, "", "wrong", "al"):
            assert (await asking.ask(method, path, token))[0] == 401, (method, path, token)
    assert asking.guard.refused_count == 16, "nothing that is open, and nothing that is not there"
    assert (await asking.ask("GET", "/metrics"))[0] == 401
    exposed = asking.guard.exposition().exposition().decode()
    assert "quire_admin_requests_refused_total 17.0" in exposed


async def test_a_changed_file_of_tokens_counts_at_once(asking: Port, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    assert (await asking.ask("PUT", "/operate", LONG))[0] == 200
    file.write_text(f"bert operate {LONG}-2\n")
    os.utime(file, ns=(1, 1))
    assert (await asking.ask("PUT", "/operate", LONG))[0] == 401
    assert await asking.ask("PUT", "/operate", f"{LONG}-2") == (200, "bert operate")
    file.write_text("nonsense\n")
    os.utime(file, ns=(2, 2))
    assert (await asking.ask("PUT", "/operate", f"{LONG}-2"))[0] == 200


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"admin_token": "all"}, 401),
        ({"admin_token": "all", "admin_metrics_open": False}, 401),
        ({"admin_token": "all", "admin_metrics_open": True}, 200),
        ({}, 200),
    ],
)
async def test_metrics_are_closed_with_the_token(settings: dict[str, Any], status: int) -> None:
    async with Port(Program(**settings)) as port:
        assert (await port.ask("GET", "/metrics"))[0] == status
        assert (await port.ask("GET", "/metrics", "all"))[0] == 200


async def test_no_other_sites_page_reads_metrics() -> None:
    """By a name that its own server says is this machine (DNS rebinding)."""
    async with Port(Program()) as port:
        assert (await port.ask("GET", "/metrics", headers={"Host": "evil.example"}))[0] == 403


async def test_answers_name_no_library_and_are_not_kept() -> None:
    async with Port(Program(), headers=True) as port, aiohttp.ClientSession() as session:
        for path in ("/open", "/nowhere"):
            async with session.get(f"http://127.0.0.1:{port.port}{path}") as answer:
                assert answer.headers["Server"] == "quire"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("name", ["admin_token", "admin_read_token"])
def test_a_short_token_is_refused_where_other_machines_may_guess(name: str) -> None:
    tokens = {"admin_token": "x" * 16, name: "y" * 15}
    HttpGuard(Program(**tokens), "127.0.0.1")
    with pytest.raises(ConfigError, match=f"{name} has 15 characters"):
        HttpGuard(Program(**tokens), "0.0.0.0")


async def test_a_token_may_be_the_password_of_a_basic_login_where_that_is_wanted() -> None:
    words = base64.b64encode(b"anna:all").decode()
    for takes_basic in (False, True):
        async with Port(Program(admin_token="all"), takes_basic=takes_basic) as port:
            for given in (words, "%%%", base64.b64encode(b"anna").decode()):
                headers = {"Authorization": f"Basic {given}"}
                status, _ = await port.ask("GET", "/look", headers=headers)
                assert status == (200 if takes_basic and given == words else 401)


async def test_while_nobody_is_asked_browsers_are_kept_at_home() -> None:
    async with Port(Program()) as port:
        assert await port.ask("DELETE", "/administer/x") == (
            200, f"{ANYBODY.name} {ANYBODY.role.word}",
        )  # fmt: skip
        for host in ("evil.example", "127.0.0.1.evil.example:80", "[", "10.0.0.7"):
            assert (await port.ask("GET", "/look", headers={"Host": host}))[0] == 403
        for origin in ("http://evil.example", "null", "http://["):
            given = {"Origin": origin}
            assert (await port.ask("PUT", "/operate", headers=given))[0] == 403
            assert (await port.ask("GET", "/look", headers=given))[0] == 200
        given = {"Origin": f"http://127.0.0.1:{port.port}"}
        assert (await port.ask("PUT", "/operate", headers=given))[0] == 200


@pytest.mark.parametrize(
    ("settings", "host", "event"),
    [
        ({}, "127.0.0.1", None),
        ({}, "0.0.0.0", "admin.open"),
        ({"admin_token": LONG}, "0.0.0.0", "admin.plain"),
        ({"admin_token": "t"}, "127.0.0.1", None),
    ],
)
def test_what_is_wrong_with_a_port_is_logged(
    settings: dict[str, Any], host: str, event: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    HttpGuard(Program(**settings), host).warn(host)
    assert [record.message.split()[0] for record in caplog.records] == ([event] if event else [])


# --- TLS ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    certificates.make(made, "node", "other", "stranger")
    return made


def tls(folder: Path, **settings: Any) -> Program:
    return Program(
        **certificates.port_settings(folder, "node"),
        admin_tls_client_ca=folder / "ca.pem",
        admin_tls_principal_rules="RULE:^CN=([^,]+).*$/$1/",
        admin_principals=("other:operate",),
        **settings,
    )


async def test_a_certificate_says_who_one_is(folder: Path, tmp_path: Path) -> None:
    async with Port(tls(folder, admin_token="all")) as port:
        other, nobody = certificates.client(folder, "other"), certificates.client(folder)
        stranger = certificates.client(folder, "stranger")
        assert await port.ask("PUT", "/operate", ssl=other) == (200, "other operate")
        assert (await port.ask("DELETE", "/administer/x", ssl=other))[0] == 403
        assert (await port.ask("DELETE", "/administer/x", "all", ssl=other))[0] == 200
        assert (await port.ask("GET", "/look", "wrong", ssl=other))[0] == 401
        for context in (nobody, stranger):
            assert (await port.ask("GET", "/look", ssl=context))[0] == 401
            assert (await port.ask("GET", "/look", "all", ssl=context))[0] == 200
        certificates.make(tmp_path, "other")
        foreign = certificates.client(folder)
        foreign.load_cert_chain(tmp_path / "other.pem", tmp_path / "other.key")
        with pytest.raises(aiohttp.ClientError):
            await port.ask("GET", "/look", ssl=foreign)
        assert port.doors.handshakes_failed >= 1  # aiohttp tries a GET again


async def test_large_answers_and_many_requests_go_through_tls(folder: Path) -> None:
    async with Port(tls(folder, admin_token="all")) as port:
        context = certificates.client(folder, "other")
        answers = await asyncio.gather(
            *(port.ask("GET", "/look", ssl=context, data=b"x" * 300_000) for _ in range(20))
        )
        assert {status for status, _ in answers} == {200}


async def test_a_renewed_certificate_is_shown_to_the_next_connection(tmp_path: Path) -> None:
    certificates.make(tmp_path, "node")
    access = Program(**certificates.port_settings(tmp_path, "node"))
    async with Port(access) as port:
        before = port.guard.expires_s
        assert before is not None
        now = datetime.datetime.now(datetime.UTC)
        renew(tmp_path, "node", now, days=500)
        context = certificates.client(tmp_path)
        _, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=context)
        shown = writer.get_extra_info("peercert")
        writer.close()
        assert port.guard.expires_s is not None and port.guard.expires_s > before
        assert ssl.cert_time_to_seconds(shown["notAfter"]) == port.guard.expires_s
        (tmp_path / "node.pem").write_text("nonsense")
        assert (await port.ask("GET", "/look", ssl=context))[0] == 200
        assert "quire_admin_certificate_expires_seconds" in (
            port.guard.exposition().exposition().decode()
        )


async def test_plain_text_and_silence_at_a_tls_port_end(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "_HANDSHAKE_TIMEOUT_S", 0.05)
    async with Port(tls(folder, admin_token="all")) as port:
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(sent)
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()
        assert port.doors.handshakes_failed == 2
    text = caplog.text
    assert "the client speaks plain text to a listener with TLS" in text
    assert "took longer" in text


@pytest.mark.parametrize("setting", ["admin_tls_cert", "admin_tls_client_ca", "admin_tokens_file"])
def test_unreadable_files_are_configuration_errors(
    folder: Path, setting: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    settings = {
        **certificates.port_settings(folder, "node"),
        "admin_tls_client_ca": folder / "ca.pem", "admin_principals": ("x:look",),
        "admin_token": "t", setting: broken,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=setting):
        HttpGuard(Program(**settings), "127.0.0.1")


# --- guesses --------------------------------------------------------------------------------


async def test_wrong_tokens_are_answered_late_and_right_ones_at_once() -> None:
    access = Program(admin_token="all", admin_failure_delay_ms=3_600_000,
                     admin_failure_delay_max_ms=3_600_000)  # fmt: skip
    async with Port(access) as port:
        guess = asyncio.create_task(port.ask("GET", "/look", "wrong"))
        await until(lambda: port.guard.refused_count == 1)
        assert (await port.ask("GET", "/look", "all"))[0] == 200
        assert (await port.ask("GET", "/look"))[0] == 401, "who shows none does not guess"
        assert not guess.done()
        guess.cancel()


async def test_while_many_answers_wait_further_tokens_are_not_looked_at() -> None:
    access = Program(admin_token="all", admin_failure_delay_ms=3_600_000,
                     admin_failure_delay_max_ms=3_600_000)  # fmt: skip
    async with Port(access) as port:
        guesses = [
            asyncio.create_task(port.ask("GET", "/look", f"guess {number}"))
            for number in range(WAITING_MAX)
        ]
        await until(lambda: port.guard.refused_count == WAITING_MAX)
        for guess in guesses:
            guess.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
        for token in ("wrong", "all"):
            status, text = await port.ask("GET", "/look", token)
            assert (status, "wrong tokens just now" in text) == (429, True), "hanging up helps not"
        assert (await port.ask("GET", "/open"))[0] == 200

"""Who may use a bookie: TLS on its port, and certificates, over loopback with our own client."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bookie.access_config import AccessConfig
from bookie.server.guard import Guard
from bookie.server.server import BookieServer
from client.errors import (
    BookieUnavailable,
    ConfigError,
    LedgerError,
    QuireError,
    UnauthorizedAccess,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookies import Bookies
from client.ledger.config import LedgerClientConfig
from client.metadata.memory import MemoryCluster
from client.security.cluster_security import ClusterSecurity
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.messages import (
    AddResponse,
    AuthRequest,
    AuthResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
)
from tests.fakes import certificates
from tests.fakes.bookie_box import BookieBox, add, fence, read
from tests.unit.bookie.server.test_server import SERVER_LIMITS

REQUIRED = AccessConfig(tls="required", tls_client_auth="required")
CLIENT = LedgerClientConfig(reconnect_delay_min_ms=1, reconnect_delay_max_ms=1)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return certificates.write(tmp_path)


def security(files: Path, who: str | None = "anna", **more: Any) -> ClusterSecurity:
    fields: dict[str, Any] = {"tls_ca": files / "authority.pem", "bookie_tls": True, **more}
    if who is not None:
        fields |= {"tls_cert": files / f"{who}.pem", "tls_key": files / f"{who}.key"}
    return ClusterSecurity(**fields)


class House:
    """A bookie and its clients."""

    def __init__(self, files: Path) -> None:
        self.files = files
        self.box = BookieBox()
        self.port = 0
        self.server: BookieServer
        self._closes: list[Callable[[], None]] = []

    async def open(self, access: AccessConfig = REQUIRED, who: str = "broker") -> None:
        loop = asyncio.get_running_loop()
        guard = None if access.tls == "off" else Guard(access, security(self.files, who), loop)
        self.server = BookieServer(
            self.box.handlers, self.box.backlog, SERVER_LIMITS, loop=loop,
            metrics=self.box.metrics, guard=guard,
        )  # fmt: skip
        self.port = await self.server.start("127.0.0.1", 0)
        self._closes.append(self.server.stop)

    def client(
        self, security: ClusterSecurity, host: str = "127.0.0.1", version: Any = "both"
    ) -> Client:
        directory = BookieDirectory(MemoryCluster().session(), "/ledgers")
        config = LedgerClientConfig(
            wire_version=version, reconnect_delay_min_ms=1, reconnect_delay_max_ms=1
        )
        bookies = Bookies(directory, config, security=security)
        self._closes.append(bookies.close)
        return Client(bookies, BookieId(f"{host}:{self.port}"))

    def close(self) -> None:
        for close in reversed(self._closes):
            close()


class Client:
    """Asks one bookie."""

    def __init__(self, bookies: Bookies, bookie: BookieId) -> None:
        self._bookie = bookies.bookie(bookie)

    async def ask(self, request: Request) -> Response | LedgerError:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._bookie.request(request, lambda _, outcome: answer.set_result(outcome), 10)
        async with asyncio.timeout(10):
            found: Response | LedgerError = await answer
        return found


@pytest.fixture
async def house(files: Path) -> AsyncIterator[House]:
    house = House(files)
    yield house
    house.close()
    await asyncio.sleep(0)


ADDED = AddResponse(Status.OK, LedgerId(1), EntryId(0))


@pytest.mark.parametrize("version", ["both", "v2", "v3"])
async def test_everything_goes_over_tls(house: House, version: Any) -> None:
    await house.open()
    client = house.client(security(house.files), version=version)
    assert await client.ask(add(1, 0)) == ADDED
    found: Any = await client.ask(read(1, 0))
    assert found.status is Status.OK and b"payload" in bytes(found.entry)
    fenced: Any = await client.ask(fence(1))
    assert fenced.status is Status.OK


def test_the_same_on_the_loop_of_bookies_and_brokers(files: Path) -> None:
    async def talk() -> Any:
        house = House(files)
        await house.open()
        client = house.client(security(files))
        large = add(1, 0, bytes(9_000))
        answers = [
            await client.ask(large),
            await client.ask(read(1, 0)),
            await client.ask(fence(1)),
        ]
        house.close()
        await asyncio.sleep(0)
        return answers

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        added, found, fenced = runner.run(talk())
    assert added == ADDED
    assert len(found.entry) > 9_000 and fenced.status is Status.OK


@pytest.mark.parametrize("request_", [add(1, 0), read(1, 0), fence(1)])
async def test_plain_text_is_refused_where_tls_is_required(house: House, request_: Request) -> None:
    await house.open()
    client = house.client(ClusterSecurity())
    error = await client.ask(request_)
    assert isinstance(error, UnauthorizedAccess)
    assert "cluster_security" in str(error), "it says what may be wrong"
    trusted: Any = await house.client(security(house.files)).ask(read(1, 0))
    assert isinstance(trusted, LedgerError) and "NO_LEDGER" in str(trusted), "nothing was done"
    assert house.box.metrics.unauthorized_requests == 1


async def test_both_are_served_where_tls_is_offered(house: House) -> None:
    await house.open(AccessConfig(tls="offered"))
    assert await house.client(ClusterSecurity()).ask(add(1, 0)) == ADDED
    found: Any = await house.client(security(house.files, None)).ask(read(1, 0))
    assert found.status is Status.OK


async def test_a_client_that_wants_tls_gets_it_or_nothing(house: House) -> None:
    await house.open(AccessConfig())
    error = await house.client(security(house.files)).ask(add(1, 0))
    assert isinstance(error, BookieUnavailable) and "does not speak TLS" in str(error)


@pytest.mark.parametrize("who", [None, "stranger", "expired"])
async def test_who_has_no_good_certificate_gets_nothing(house: House, who: str | None) -> None:
    await house.open()
    error = await house.client(security(house.files, who)).ask(fence(1))
    assert isinstance(error, BookieUnavailable)
    assert house.server.guard is not None and house.server.guard.gate.failures >= 1


async def test_only_those_named_are_allowed(house: House) -> None:
    rules = r"RULE:^CN=(\w+).*$/$1/"
    allowed = AccessConfig(
        tls="required", tls_client_auth="required", allowed_clients=("anna",),
        tls_principal_rules=rules,
    )  # fmt: skip
    await house.open(allowed)
    assert await house.client(security(house.files, "anna")).ask(add(1, 0)) == ADDED
    error = await house.client(security(house.files, "broker")).ask(fence(1))
    assert isinstance(error, UnauthorizedAccess)
    assert await house.client(security(house.files, "anna")).ask(add(1, 1)) == AddResponse(
        Status.OK, LedgerId(1), EntryId(1)
    ), "it was not fenced"


async def test_the_bookie_has_to_be_who_it_says(house: House) -> None:
    await house.open(who="anna")  # a certificate without the host's name
    error = await house.client(security(house.files)).ask(read(1, 0))
    assert isinstance(error, BookieUnavailable) and "certificate" in str(error).lower()
    unchecked = security(house.files, tls_checks_name=False)
    assert await house.client(unchecked).ask(add(1, 0)) == ADDED
    foreign = security(house.files, tls_ca=house.files / "other.pem")
    assert isinstance(await house.client(foreign).ask(read(1, 0)), BookieUnavailable)


async def test_a_new_certificate_is_taken_without_a_restart(house: House) -> None:
    await house.open()
    guard = house.server.guard
    assert guard is not None
    before = guard.context()
    assert guard.context() is before
    shutil.copy(house.files / "renewed.key", house.files / "broker.key")
    assert guard.context() is before, "they do not fit together yet"
    shutil.copy(house.files / "renewed.pem", house.files / "broker.pem")
    assert guard.context() is not before
    assert await house.client(security(house.files)).ask(add(1, 0)) == ADDED


async def raw(house: House, *requests: Request, more: bytes = b"") -> tuple[Any, Any]:
    """Send requests at once, in version 3 and plain text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    frames = (b"".join(map(bytes, v3.encode_request(each, n))) for n, each in enumerate(requests))
    writer.write(b"".join(frames) + more)
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> Response:
    async with asyncio.timeout(5):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return v3.decode_response(memoryview(await reader.readexactly(size)))[1]


@pytest.mark.parametrize(
    ("requests", "more"),
    [
        ((StartTlsRequest(), read(1, 0)), b""),
        ((StartTlsRequest(),), b"\x00"),
    ],
)
async def test_nothing_may_come_together_with_start_tls(
    house: House, requests: tuple[Request, ...], more: bytes
) -> None:
    await house.open()
    reader, writer = await raw(house, *requests, more=more)
    async with asyncio.timeout(5):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(4)
    writer.close()


async def test_authentication_by_a_plugin_is_answered_and_worth_nothing(house: House) -> None:
    await house.open()
    reader, writer = await raw(house, AuthRequest("any", b"token"), fence(1))
    assert await answer(reader) == AuthResponse("AuthDisabledPlugin", b"")
    refused: Any = await answer(reader)
    assert refused.status is Status.UNAUTHORIZED
    writer.close()


AUTH = AuthRequest("sasl", b"token")


def v2_auth() -> bytes:
    return b"".join(map(bytes, v2.encode_request(AUTH)))


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("is_v2", [True, False])
async def test_an_auth_that_comes_before_the_handshake_is_answered_behind_it(
    house: House, is_together: bool, is_v2: bool
) -> None:
    """Apache's client with a plugin sends it right behind StartTLS, and waits for the answer."""
    await house.open()
    auth = v2_auth() if is_v2 else b"".join(map(bytes, v3.encode_request(AUTH, 7)))
    reader, writer = await raw(house, StartTlsRequest(), more=auth if is_together else b"")
    assert await answer(reader) == StartTlsResponse(Status.OK)
    if not is_together:
        writer.write(auth)
    await writer.start_tls(security(house.files).contexts().get(), server_hostname="127.0.0.1")
    async with asyncio.timeout(5):
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = memoryview(await reader.readexactly(size))
    answered = v2.decode_response(frame) if is_v2 else v3.decode_response(frame)[1]
    assert answered == AuthResponse("AuthDisabledPlugin", b"")
    writer.write(b"".join(map(bytes, v3.encode_request(add(1, 0), 8))))
    assert await answer(reader) == ADDED, "and what it asks then is served"
    writer.close()


@pytest.mark.parametrize("behind", [(AUTH, AUTH), (AUTH, fence(1)), (fence(1),)])
@pytest.mark.parametrize("is_together", [True, False])
async def test_nothing_else_may_come_before_the_handshake(
    house: House, behind: tuple[Request, ...], is_together: bool
) -> None:
    await house.open()
    more = b"".join(b"".join(map(bytes, v3.encode_request(each, 7))) for each in behind)
    reader, writer = await raw(house, StartTlsRequest(), more=more if is_together else b"")
    if not is_together:
        assert await answer(reader) == StartTlsResponse(Status.OK)
        writer.write(more)
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_plain_text_instead_of_a_handshake(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.open()
    reader, writer = await raw(house, StartTlsRequest())
    assert await answer(reader) == StartTlsResponse(Status.OK)
    writer.write(b"".join(map(bytes, v3.encode_request(fence(1), 7))))
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    assert "not TLS" in caplog.text
    writer.close()


async def test_handshakes_are_few_and_short(house: House) -> None:
    await house.open(
        AccessConfig(tls="required", tls_handshakes_max=1, tls_handshake_timeout_ms=200)
    )
    first, first_writer = await raw(house, StartTlsRequest())
    assert await answer(first) == StartTlsResponse(Status.OK)
    second, second_writer = await raw(house, StartTlsRequest())
    async with asyncio.timeout(5):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await second.readexactly(4)
        assert await first.read() == b"", "it stalled"
    assert await house.client(security(house.files)).ask(add(1, 0)) == ADDED
    first_writer.close()
    second_writer.close()


async def test_no_address_has_more_than_half_of_the_handshakes(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Or one stranger would keep all brokers out, for as long as a handshake may take."""
    await house.open(AccessConfig(tls="required", tls_handshakes_max=2))
    opened = await raw(house, StartTlsRequest())
    assert await answer(opened[0]) == StartTlsResponse(Status.OK)
    reader, writer = await raw(house, StartTlsRequest())
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    assert "tls_handshakes_max is reached" in caplog.text
    assert house.server.guard is not None and house.server.guard.gate.handshakes == 1
    opened[1].close()
    writer.close()


async def test_who_may_ask_nothing_sends_little_and_goes_soon(house: House) -> None:
    await house.open(AccessConfig(tls="required", tls_handshake_timeout_ms=200))
    reader, writer = await raw(house, more=(65 << 10).to_bytes(4, "big"))
    async with asyncio.timeout(5):
        assert await reader.read() == b"", "before any of it came"
    writer.close()
    reader, writer = await raw(house, read(1, 0))
    refused: Any = await answer(reader)
    assert refused.status is Status.UNAUTHORIZED
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


async def test_tls_does_not_begin_twice(house: House) -> None:
    await house.open()
    reader, writer = await raw(house, StartTlsRequest())
    await answer(reader)
    await writer.start_tls(security(house.files).contexts().get(), server_hostname="127.0.0.1")
    writer.write(b"".join(map(bytes, v3.encode_request(StartTlsRequest(), 1))))
    refused: Any = await answer(reader)
    assert refused.status is Status.BAD_REQUEST
    writer.close()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tls_client_auth": "required"}, "no effect while access.tls is off"),
        ({"tls": "required", "allowed_clients": ("a",)}, "needs access.tls_client_auth"),
        (
            {"tls": "offered", "tls_client_auth": "required", "allowed_clients": ("a",)},
            "while plain text is served",
        ),
        ({"tls": "required", "tls_principal_rules": "X"}, "access.tls_principal_rules must be"),
        ({"tls": "required", "tls_handshakes_max": 0}, "at least 1"),
    ],
)
def test_settings_that_contradict_each_other(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        AccessConfig(**fields)


def test_settings_that_need_others() -> None:
    with pytest.raises(ConfigError, match=r"needs cluster_security\.tls_cert"):
        AccessConfig(tls="offered").check_beside(ClusterSecurity())
    with pytest.raises(ConfigError, match="must be set together"):
        ClusterSecurity(tls_key=Path("key"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(QuireError, match=r"cluster_security\.tls_ca"):
        ClusterSecurity(tls_ca=tmp_path / "none").contexts()


def test_the_context_checks_names() -> None:
    context = ClusterSecurity(bookie_tls=True).contexts().get()
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED

"""Listeners as clients find them: each mistake is seen, and called by its name."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ops.doctor.findings import Finding, Level
from ops.doctor.outside import ListenerState, Look, check_listeners, listeners_of, look
from ops.ports import pick_free
from tests.fakes import made_certificates as certificates

HOST = "127.0.0.1"
Answer = Callable[[bytes], bytes]


def kafka(request: bytes) -> bytes:
    _, _, _, correlation_id, _ = struct.unpack(">ihhih", request)
    return struct.pack(">iihi", 10, correlation_id, 0, 0)


@asynccontextmanager
async def serving(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.read(1024)))
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_broker_and_what_is_none() -> None:
    async with serving(kafka) as port:
        assert await look(HOST, port, None) == Look(ListenerState.SERVES, "", (HOST,))
    for answer in (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", lambda _: b"220 x\r\n"):
        async with serving(answer) as port:
            seen = await look(HOST, port, None)
            assert seen.state is ListenerState.STRANGE
            assert "HTTP/1.1 4" in seen.detail or "220 x" in seen.detail
    async with serving(lambda _: b"") as port:
        assert (await look(HOST, port, None)).detail == "it answers nothing and hangs up"
    assert (await look(HOST, pick_free(1)[0], None)).state is ListenerState.SILENT


async def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    seen = await look("no-such-host.example", 9092, None)
    assert seen == Look(ListenerState.UNRESOLVED, "Name or service not known")
    monkeypatch.undo()
    assert (await look("x" * 70, 9092, None)).state is ListenerState.UNRESOLVED, "no name at all"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    certificates.make(made, "node", "other")
    return made


def server_context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "node.pem", folder / "node.key")
    return context


async def test_listeners_of_tls(folder: Path, tmp_path: Path) -> None:
    context = server_context(folder)
    trusting = certificates.client(folder)
    async with serving(kafka, context) as port:
        assert (await look(HOST, port, trusting)).state is ListenerState.SERVES
        assert (await look(HOST, port, None)).state in (
            ListenerState.WANTS_TLS,
            ListenerState.STRANGE,
        )
        seen = await look(HOST, port, ssl.create_default_context())
        assert (seen.state, "certificate" in seen.detail) == (ListenerState.UNTRUSTED, True)
        elsewhere = await look("127.0.0.2", port, trusting)
        assert elsewhere.state is ListenerState.SILENT, "it listens at one address"
    async with serving(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert (await look(HOST, port, trusting)).state is ListenerState.SPEAKS_PLAIN


async def test_a_certificate_for_other_names_and_one_that_is_wanted(folder: Path) -> None:
    context, trusting = server_context(folder), certificates.client(folder)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.9", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    seen = await look("127.0.0.9", port, trusting)
    server.close()
    assert seen.state is ListenerState.WRONG_NAME
    assert HOST in seen.detail, "what it is for"
    assert trusting.check_hostname
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    async with serving(kafka, context) as port:
        assert (await look(HOST, port, trusting)).state is ListenerState.WANTS_CERTIFICATE
        assert (
            await look(HOST, port, certificates.client(folder, "other"))
        ).state is ListenerState.SERVES


# --- what is said of it ----------------------------------------------------------------------


def broker(admin: str | None = "http://10.0.0.1:8080", *listeners: str) -> dict[str, Any]:
    rows = [
        {"name": name, "protocol": "SASL_SSL", "host": "b1.example", "port": 9092,
         "is_advertised": True}
        for name in listeners
    ]  # fmt: skip
    return {
        "broker_id": 1, "host": "b1.example", "port": 9092, "admin_url": admin, "listeners": rows,
    }  # fmt: skip


def one(seen: Look, *, has_settings: bool = True) -> Finding:
    (found,) = check_listeners(broker(), {"PLAINTEXT": seen}, has_settings=has_settings)
    return found


@pytest.mark.parametrize("state", list(ListenerState))
def test_each_mistake_has_its_sentence_and_what_to_do(state: ListenerState) -> None:
    found = one(Look(state, "the detail", ("10.0.0.1",)))
    if state is ListenerState.SERVES:
        assert found.level is Level.FINE
    else:
        assert found.level is Level.TROUBLE
        assert "broker 1 sends clients of PLAINTEXT to b1.example:9092" in found.what
        assert "--client-config" in found.advice or "advertised_listeners" in found.advice
        assert "{" not in found.what + found.advice


def test_what_only_settings_of_clients_can_say_is_a_warning_without_them() -> None:
    for state in (ListenerState.UNTRUSTED, ListenerState.WANTS_CERTIFICATE):
        assert one(Look(state), has_settings=False).level is Level.WARNING
    assert one(Look(ListenerState.WRONG_NAME), has_settings=False).level is Level.TROUBLE


def test_clients_that_are_sent_to_themselves() -> None:
    seen = Look(ListenerState.SERVES, "", ("127.0.1.1",))
    found = one(seen)
    assert found.level is Level.TROUBLE
    assert "(127.0.1.1), which is their own machine" in found.what
    for admin in ("http://127.0.0.1:8080", None):  # all of the cluster is on this machine
        (found,) = check_listeners(broker(admin), {"PLAINTEXT": seen}, has_settings=True)
        assert found.level is Level.FINE


def test_a_listener_for_clients_elsewhere_is_no_trouble_while_another_one_answers() -> None:
    row = broker("http://10.0.0.1:8080", "INSIDE", "OUTSIDE")
    assert [each["name"] for each in listeners_of(row)] == ["INSIDE", "OUTSIDE"]
    looks = {
        "INSIDE": Look(ListenerState.SILENT),
        "OUTSIDE": Look(ListenerState.SERVES, "", ("10.0.0.1",)),
    }
    inside, outside = check_listeners(row, looks, has_settings=True)
    assert (inside.level, outside.level) == (Level.WARNING, Level.FINE)
    assert "INSIDE in security.advertised_listeners" in inside.advice
    looks["OUTSIDE"] = Look(ListenerState.WRONG_NAME, "b2.example")
    inside, outside = check_listeners(row, looks, has_settings=True)
    assert (inside.level, outside.level) == (Level.TROUBLE, Level.TROUBLE)

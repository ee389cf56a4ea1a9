"""Asking a bookie's admin server: answers, refusals, and silence, each in one sentence."""

from __future__ import annotations

import pytest
from aiohttp import web

from client.errors import QuireError
from client.ledger.bookies.bookie_directory import Address, ServiceInfo
from ops.bookie_http import BookieRefused, ask
from ops.ports import pick_free

NOWHERE = Address("127.0.0.1", 1)


def info(port: int | None) -> ServiceInfo:
    return ServiceInfo(NOWHERE, None, None if port is None else Address("127.0.0.1", port))


async def test_answers_and_refusals() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"got": await request.json()})

    async def refuse(request: web.Request) -> web.Response:
        raise web.HTTPConflict(text="the bookie stays read-only: /d is full\n")

    async def text(request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    app = web.Application()
    app.router.add_put("/echo", echo)
    app.router.add_put("/refuse", refuse)
    app.router.add_get("/text", text)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    there = info(runner.addresses[0][1])
    assert await ask("b1", there, "PUT", "/echo", {"a": True}) == {"got": {"a": True}}
    assert await ask("b1", there, "GET", "/text") == "OK\n"
    with pytest.raises(BookieRefused, match="bookie b1 says: the bookie stays read-only: /d is"):
        await ask("b1", there, "PUT", "/refuse")
    await runner.cleanup()


async def test_silence_says_what_to_do() -> None:
    with pytest.raises(QuireError, match="start it with --admin-port PORT"):
        await ask("b1", info(None), "GET", "/")
    with pytest.raises(QuireError, match="listens on --admin-host"):
        await ask("b1", info(pick_free(1)[0]), "GET", "/")

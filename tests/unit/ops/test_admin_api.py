"""The admin API's client: errors in sentences, further addresses, what is repeated and what not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from client.errors import ConfigError
from client.security.admin_access import Teller
from ops.admin_api import Access, AdminApi
from ops.admin_errors import AdminError, AdminUnreachable
from ops.ports import pick_free

PROVEN = Teller(frozenset({"b1.example.org"}), is_proven=True)
UNPROVEN = PROVEN._replace(is_proven=False)

Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serving(handler: Handler) -> Any:
    """Serve everything with one handler; give its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def problem(status: int, name: str, *, retriable: bool = False) -> web.Response:
    body = {
        "type": f"urn:quire:problem:{name}",
        "detail": "it went wrong",
        "hint": "GET /something.",
        "retriable": retriable,
        "may_have_happened": False,
    }
    return web.json_response(body, status=status, content_type="application/problem+json")


def nobody() -> str:
    return f"http://127.0.0.1:{pick_free(1)[0]}"


async def test_lists_are_read_page_by_page_with_the_token() -> None:
    seen = []

    async def pages(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers.get("Authorization")))
        at = int(request.query.get("after", 0))
        return web.json_response({"items": [at, at + 1], "next": str(at + 2) if at < 4 else None})

    async with serving(pages) as url, AdminApi(Access((url,), "s3cret")) as api:
        assert await api.list("/topics", prefix="a b", internal=True, absent=None) == [*range(6)]
    assert seen[0] == ("/admin/v1/topics?limit=1000&prefix=a+b&internal=true", "Bearer s3cret")
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("url", "teller", "authority", "why"),
    [
        ("http://b1.example.org:9640", PROVEN, None, "not https"),
        ("http://b1.example.org:9640", PROVEN, Path("ca.pem"), "not https"),
        ("https://evil.example.org:9640", UNPROVEN, None, "nothing proves"),
        ("https://evil.example.org:9640", UNPROVEN, Path("ca.pem"), ""),
        ("https://b2.example.org:9640", PROVEN, None, ""),
        ("https://b1.example.org:9640", UNPROVEN, None, ""),
        ("http://127.0.0.1:9640", UNPROVEN, None, ""),
        ("http://anywhere.example.org:9640", None, None, ""),
    ],
)
def test_where_a_token_may_go(
    url: str, teller: Teller | None, authority: Path | None, why: str
) -> None:
    found = Access((url,), "s3cret", authority, teller=teller).withholds_token_from(URL(url))
    assert found.startswith(why) if not why else why in found
    assert not Access((url,), teller=teller).withholds_token_from(URL(url)), "there is no token"


async def test_a_told_address_that_may_not_have_the_token_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was asked")

    monkeypatch.setattr("aiohttp.ClientSession._request", asked)
    access = Access(("http://evil.example.org:9640",), "s3cret", teller=UNPROVEN)
    async with AdminApi(access) as api:
        with pytest.raises(AdminUnreachable, match="not https; if it is right, --admin URL"):
            await api.send("POST", "/brokers/1/actions/unload")


async def test_the_next_address_is_asked_when_one_is_gone() -> None:
    async def fine(request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async with serving(fine) as url, AdminApi(Access((nobody(), url))) as api:
        assert await api.get("/cluster") == {"ok": True}
    gone = nobody()
    async with AdminApi(Access((gone,))) as api:
        with pytest.raises(AdminUnreachable, match=rf"answers at {gone} \(Connection refused\)"):
            await api.get("/cluster")


async def test_problems_become_sentences_of_the_command_line() -> None:
    async def fails(request: web.Request) -> web.Response:
        if request.path.endswith("/plain"):
            return web.Response(status=502, text="<html>proxy</html>")
        return problem(404, "unknown-group" if "groups" in request.path else "other")

    async with serving(fails) as url, AdminApi(Access((url,))) as api:
        with pytest.raises(AdminError) as caught:
            await api.get("/groups/x")
        assert str(caught.value) == "it went wrong. `quire group list` shows what there is."
        assert (caught.value.status, caught.value.problem) == (404, "unknown-group")
        with pytest.raises(AdminError, match=r"it went wrong. GET /something."):
            await api.get("/x")
        with pytest.raises(AdminError, match="HTTP status 502: <html>proxy"):
            await api.get("/plain")


async def test_what_is_not_possible_yet_is_repeated_for_a_while() -> None:
    tries = []

    async def later(request: web.Request) -> web.Response:
        tries.append(json.loads(await request.read()))
        if len(tries) < 3:
            return problem(503, "starting", retriable=True)
        return web.json_response({"done": 1})

    async with serving(later) as url:
        async with AdminApi(Access((url,))) as api:
            assert await api.send("PUT", "/x", {"a": 1}) == {"done": 1}
        assert tries == [{"a": 1}] * 3
        tries.clear()
        async with AdminApi(Access((url,), patience_s=0)) as api:
            with pytest.raises(AdminError):
                await api.send("PUT", "/x", {"a": 1})
        assert len(tries) < 3


async def test_a_publication_that_broke_off_is_not_repeated_elsewhere() -> None:
    asked = []

    async def hangs_up(request: web.Request) -> web.Response:
        asked.append(request.method)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def fine(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.json_response({})

    async with (
        serving(hangs_up) as first,
        serving(fine) as second,
        AdminApi(Access((first, second))) as api,
    ):
        with pytest.raises(AdminUnreachable, match="may have been carried out"):
            await api.send("POST", "/topics/t/records", {})
        assert asked == ["POST"]
        assert await api.send("PUT", "/topics/t", {}) == {}


async def test_bytes_and_nothing_come_as_they_are() -> None:
    async def octets(request: web.Request) -> web.Response:
        if request.headers["Accept"] == "application/octet-stream":
            return web.Response(body=b"\x00\xff", content_type="application/octet-stream")
        return web.Response(status=204)

    async with serving(octets) as url, AdminApi(Access((url,))) as api:
        assert await api.send("GET", "/x", accept="application/octet-stream") == b"\x00\xff"
        assert await api.send("DELETE", "/x") is None


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of an admin API"):
        AdminApi(Access((url,)))


async def test_an_authority_that_cannot_be_read_is_named(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="cannot use the certificates in"):
        async with AdminApi(Access(("https://127.0.0.1:1",), authority=tmp_path / "none.pem")):
            pass

"""`quire bookie` on bookies that are scripted: what is shown, what is asked, what is said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from client.errors import QuireError
from client.ids import BookieId
from client.ledger.bookies.bookie_directory import Address, ServiceInfo
from ops.bookie_http import BookieAccess
from ops.bookies import DOWN, READ_ONLY, UP, BookieView
from ops.cli import bookie
from ops.cli.main import quire

HTTP = Address("h1", 8080)
WITH_ADMIN = ServiceInfo(Address("h1", 3181), "/east", HTTP)
WITHOUT_ADMIN = ServiceInfo(Address("h2", 3181), None)
VIEWS = [
    BookieView(BookieId("b1"), UP, WITH_ADMIN, 400, 1000),
    BookieView(BookieId("b2"), READ_ONLY, WITHOUT_ADMIN),
    BookieView(BookieId("b3"), DOWN, None),
]
GC = {
    "majorCompactionCounter": 2,
    "minorCompactionCounter": 0,
    "lastMajorCompactionTime": 1_700_000_000_000,
    "lastMinorCompactionTime": 0,
    "majorCompactionSuspended": True,
    "minorCompactionSuspended": False,
}


class Admins:
    """What the admin servers answer, and what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []
        self.failure: QuireError | None = None

    async def ask(
        self, bookie_id: str, info: ServiceInfo, method: str, path: str, body: Any = None,
        *, access: BookieAccess,
    ) -> Any:  # fmt: skip
        assert access.token == ""
        self.asked.append((bookie_id, method, path, body))
        if self.failure is not None:
            raise self.failure
        if path.endswith("/state/readonly"):
            wanted = bool(body and body["readOnly"])
            return {"readOnly": wanted, "reasons": ["an operator made it so"] if wanted else []}
        if path.endswith("/gc_details"):
            return [GC]
        return {"running": True, "availableForHighPriorityWrites": True}


@pytest.fixture
def admins(monkeypatch: pytest.MonkeyPatch) -> Admins:
    admins = Admins()

    @asynccontextmanager
    async def cluster(hosts: str) -> AsyncIterator[tuple[None, None]]:
        yield None, None

    async def all_bookies(store: None, client: None) -> list[BookieView]:
        return VIEWS

    async def one_bookie(store: None, client: None, bookie_id: str) -> BookieView:
        return next(view for view in VIEWS if view.bookie_id == bookie_id)

    monkeypatch.setattr(bookie, "_cluster", cluster)
    monkeypatch.setattr(bookie, "all_bookies", all_bookies)
    monkeypatch.setattr(bookie, "one_bookie", one_bookie)
    monkeypatch.setattr(bookie.bookie_http, "ask", admins.ask)
    return admins


def invoke(*words: str) -> Result:
    return CliRunner().invoke(quire, ["bookie", *words])


def test_all_bookies_are_listed_whatever_their_state(admins: Admins) -> None:
    lines = invoke("list").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["b1", "up"],
        ["b2", "read-only"],
        ["b3", "down"],
    ]
    found = json.loads(invoke("list", "--json").stdout)
    assert found[0] == {
        "bookie": "b1",
        "state": "up",
        "address": "h1:3181",
        "admin_url": "http://h1:8080",
        "rack": "/east",
        "free_bytes": 400,
        "total_bytes": 1000,
    }
    assert found[2]["address"] is None


def test_what_the_admin_server_tells_is_shown(admins: Admins) -> None:
    text = invoke("info", "b1").stdout
    assert "read-only because  it is not" in text
    assert "major compactions  2, last 2023-11-14 22:13:20 UTC, held" in text
    assert "minor compactions  0, last never" in text
    assert json.loads(invoke("info", "b1", "--json").stdout)["details"]["gc"] == GC


def test_without_an_admin_server_the_rest_is_shown(admins: Admins) -> None:
    admins.failure = QuireError("the admin server of bookie b1 does not answer")
    result = invoke("info", "b1")
    assert result.exit_code == 0
    assert "400 bytes" in result.stdout
    assert "The admin server of bookie b1 does not answer." in result.stderr
    admins.failure = None
    for name, state in (("b2", "read-only"), ("b3", "down")):
        result = invoke("info", name)
        assert result.exit_code == 0
        assert state in result.stdout
    assert admins.asked[1:] == []


def test_read_only_and_back(admins: Admins) -> None:
    result = invoke("readonly", "b1")
    assert result.stderr == "Bookie b1 is read-only: an operator made it so.\n"
    result = invoke("readonly", "b1", "--off", "--json")
    assert json.loads(result.stdout) == {"bookie": "b1", "readOnly": False, "reasons": []}
    path = "/api/v1/bookie/state/readonly"
    assert admins.asked == [
        ("b1", "PUT", path, {"readOnly": True}),
        ("b1", "PUT", path, {"readOnly": False}),
    ]


def test_collecting_garbage(admins: Admins) -> None:
    assert invoke("gc", "b1", "--major").exit_code == 0
    assert json.loads(invoke("gc", "b1", "--json").stdout)["asked"] is True
    assert [body for *_, body in admins.asked] == [
        {"forceMajor": True, "forceMinor": False},
        {"forceMajor": False, "forceMinor": False},
    ]


@pytest.mark.parametrize("command", ["readonly", "gc"])
def test_a_bookie_that_is_down_cannot_be_told_anything(admins: Admins, command: str) -> None:
    result = invoke(command, "b3")
    assert result.exit_code == 1
    assert result.stderr == "quire: Bookie b3 is down.\n"
    assert admins.asked == []

"""How many connections of an HTTP port one address has."""

from __future__ import annotations

import asyncio
from typing import Any

from client.node.http_connections import HttpConnections


class _Door:
    def __init__(self, host: str) -> None:
        self.host = host
        self.inner = object()
        self.is_busy = False


def entered(doors: HttpConnections, host: str, count: int) -> list[Any]:
    tried = [_Door(host) for _ in range(count)]
    return [door for door in tried if doors.enter(door)]  # type: ignore[arg-type]


async def test_one_address_keeps_nobody_else_out() -> None:
    doors = HttpConnections(connections_max=100)
    assert len(entered(doors, "10.0.0.1", 200)) == 25
    assert len(entered(doors, "10.0.0.2", 1)) == 1
    assert len(entered(doors, "2001:db8::1", 20)) == 20
    assert len(entered(doors, "2001:db8::2", 20)) == 5, "one line has any number of addresses"
    assert doors.refused_count == 175 + 15


async def test_many_addresses_leave_places_for_this_machine() -> None:
    doors = HttpConnections(connections_max=100)
    for n in range(20):
        entered(doors, f"10.0.0.{n}", 25)
    assert len(entered(doors, "127.0.0.1", 100)) == 10


async def test_places_come_back() -> None:
    doors = HttpConnections(connections_max=100)
    for _ in range(3):
        for door in entered(doors, "10.0.0.1", 100):
            doors.leave(door)
    assert len(entered(doors, "10.0.0.1", 100)) == 25
    await asyncio.sleep(0)

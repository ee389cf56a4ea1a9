"""The order of a rolling restart, and what it waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.errors import QuireError
from ops.admin_errors import AdminError, AdminUnreachable
from ops.rolling import Node, RestartFailed, RollingRestart, wait_unloaded

TIMEOUT_S = 0.5


@pytest.fixture(autouse=True)
def _asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.rolling.POLL_S", 0.005)


class FakeCluster:
    """Answers as the admin API does; a restart takes a few questions to be noticed."""

    def __init__(self, brokers: int = 2, bookies: int = 2) -> None:
        self.log: list[str] = []
        self.lives = dict.fromkeys([f"broker {n}" for n in range(brokers)], 1)
        self.lives |= dict.fromkeys([f"bookie b{n}:3181" for n in range(bookies)], 1)
        self.unloaded: set[int] = set()
        self.led = dict.fromkeys(range(brokers), 3)
        self.lacking = 0
        self.away: list[Exception] = []
        """Raised by the next questions."""
        self.down: set[str] = set()

    async def restart(self, node: Node) -> None:
        self.log.append(f"restart {node} at {node.host}")
        self.lives[str(node)] += 1
        if node.kind == "broker":
            self.unloaded.discard(int(node.id))
            self.led[int(node.id)] = 3
        self.lacking = 2
        self.away.append(AdminUnreachable("nobody"))

    async def list(self, path: str, **_: object) -> Any:
        if path == "/brokers":
            return [self._broker(n) for n in self.led]
        names = [name.split()[1] for name in self.lives if name.startswith("bookie")]
        return [
            {
                "bookie_id": name,
                "state": "down" if name in self.down else "writable",
                "address": name,
                "registered_ms": self.lives[f"bookie {name}"],
            }
            for name in names
        ]

    async def get(self, path: str, **_: object) -> Any:
        if self.away:
            raise self.away.pop(0)
        if path == "/cluster":
            return {
                "brokers": {"silent": {}, "not_ready": [], "unloaded": sorted(self.unloaded)},
                "partitions": {"count": 6, "led": 6},
                "bookies": {"writable": 2, "read_only": 0, "down": len(self.down)},
            }
        if path == "/under-replication":
            self.lacking = max(0, self.lacking - 1)
            return {"items": [{"ledger_id": 7}] if self.lacking else []}
        number = int(path.rpartition("/")[2])
        if number in self.unloaded:
            self.led[number] = max(0, self.led[number] - 1)
        return self._broker(number)

    async def send(self, method: str, path: str, body: object = None) -> None:
        self.log.append(f"{method} {path}")
        self.unloaded.add(int(path.split("/")[2]))

    def _broker(self, number: int) -> dict[str, Any]:
        return {
            "broker_id": number,
            "host": "h",
            "incarnation": str(self.lives[f"broker {number}"]),
            "is_unloaded": number in self.unloaded,
            "silence": None,
            "live": {
                "partitions_led": self.led[number],
                "partitions_opening": 0,
                "is_ready": True,
                "not_ready": [],
            },
        }


def rolling(cluster: FakeCluster, *kinds: str) -> RollingRestart:
    return RollingRestart(
        cluster,  # type: ignore[arg-type]
        dict.fromkeys(kinds, cluster.restart),
        lambda _text: None,
        timeout_s=TIMEOUT_S,
        settle_s=0,
        clients_back_s=0,
    )


async def test_bookies_first_then_brokers_each_unloaded_before() -> None:
    cluster = FakeCluster()
    done = await rolling(cluster, "broker", "bookie").run()
    assert cluster.log == [
        "restart bookie b0:3181 at b0",
        "restart bookie b1:3181 at b1",
        "PUT /brokers/0/unloaded",
        "restart broker 0 at h",
        "PUT /brokers/1/unloaded",
        "restart broker 1 at h",
    ]
    assert [str(one.node) for one in done] == [
        "bookie b0:3181",
        "bookie b1:3181",
        "broker 0",
        "broker 1",
    ]


async def test_only_the_wanted_kind() -> None:
    cluster = FakeCluster()
    await rolling(cluster, "broker").run()
    assert not any("bookie" in line for line in cluster.log)


async def test_clients_get_time_to_come_back_between_two_brokers() -> None:
    pause_s = 0.3
    cluster = FakeCluster(brokers=2)
    at_s: list[float] = []

    async def restart(node: Node) -> None:
        at_s.append(asyncio.get_running_loop().time())
        await cluster.restart(node)

    await RollingRestart(
        cluster,  # type: ignore[arg-type]
        {"broker": restart},
        lambda _text: None,
        timeout_s=TIMEOUT_S,
        clients_back_s=pause_s,
    ).run()
    assert at_s[1] - at_s[0] >= pause_s
    assert asyncio.get_running_loop().time() - at_s[1] < pause_s, "nobody comes after the last one"


async def test_the_next_broker_stays_if_a_node_was_lost_in_the_pause() -> None:
    cluster = FakeCluster(brokers=2)
    losing = asyncio.get_running_loop().call_later(0.6, cluster.down.add, "b1:3181")
    with pytest.raises(RestartFailed, match=r"before the next broker after 0.5 s: 1 "):
        await RollingRestart(
            cluster,  # type: ignore[arg-type]
            {"broker": cluster.restart},
            lambda _text: None,
            timeout_s=TIMEOUT_S,
            clients_back_s=1.2,
        ).run()
    assert losing.when() < asyncio.get_running_loop().time()
    assert [line for line in cluster.log if line.startswith("restart")] == ["restart broker 0 at h"]


async def test_nothing_is_touched_while_the_cluster_is_not_whole() -> None:
    cluster = FakeCluster()
    cluster.down.add("b1:3181")
    with pytest.raises(
        RestartFailed, match=r"before anything is touched after 0.5 s: 1 bookies are"
    ):
        await rolling(cluster, "broker", "bookie").run()
    assert cluster.log == []


async def test_the_next_node_waits_for_copies() -> None:
    cluster = FakeCluster()
    cluster.lacking = 10_000
    with pytest.raises(RestartFailed, match="ledger 7 and perhaps others lack copies"):
        await rolling(cluster, "bookie").run()
    assert cluster.log == []


async def test_a_node_that_does_not_come_back_ends_it() -> None:
    cluster = FakeCluster()

    async def stuck(node: Node) -> None:
        cluster.log.append(f"restart {node}")

    for kind, why in (("broker", "its process is the old one"), ("bookie", "of the old process")):
        cluster.log.clear()
        cluster.unloaded.clear()
        restart = RollingRestart(
            cluster,  # type: ignore[arg-type]
            {kind: stuck},
            lambda _text: None,
            timeout_s=TIMEOUT_S,
            settle_s=0,
        )
        with pytest.raises(RestartFailed, match=why):
            await restart.run()
        assert len([line for line in cluster.log if line.startswith("restart")]) == 1


async def test_a_command_that_fails_ends_it() -> None:
    cluster = FakeCluster()

    async def fails(node: Node) -> None:
        raise QuireError("no such host")

    with pytest.raises(QuireError, match="no such host"):
        await RollingRestart(
            cluster,  # type: ignore[arg-type]
            {"bookie": fails},
            lambda _text: None,
            timeout_s=TIMEOUT_S,
        ).run()


async def test_a_refusal_is_not_waited_out() -> None:
    cluster = FakeCluster()
    cluster.away.append(AdminError("no token", status=401, problem="no-token"))
    with pytest.raises(AdminError, match="no token"):
        await rolling(cluster, "bookie").run()


async def test_a_single_broker_has_nobody_to_give_partitions_to() -> None:
    cluster = FakeCluster(brokers=1)
    await rolling(cluster, "broker").run()
    assert cluster.log[-1] == "restart broker 0 at h"


async def test_unloading_is_waited_for() -> None:
    cluster = FakeCluster()
    cluster.unloaded.add(0)
    await wait_unloaded(cluster, 0, TIMEOUT_S)  # type: ignore[arg-type]
    assert cluster.led[0] == 0
    with pytest.raises(RestartFailed, match=r"broker 1 is not unloaded .* leads 3 partitions"):
        await wait_unloaded(cluster, 1, TIMEOUT_S)  # type: ignore[arg-type]

"""A rolling restart: every broker and every bookie, one after the other, nobody loses a record.

Covers the order of its steps; `ops/cli/restart.py` only parses and prints.

    broker   unload it -> wait until it leads nothing -> stop and start it -> wait until its new
             life is ready -> wait until the cluster is whole -> before the next one: leave its
             clients the time to come back
    bookie   stop and start it -> wait until it is registered anew -> wait until the cluster is
             whole

Whole: every broker ready and every partition led, every bookie writable, no ledger known to lack
copies. A bookie that comes back is probed by the writers that went on without it, and what it
missed is copied to it; until that is over the next one must not go, or writes would wait.

A broker that serves again is not yet one that its clients use: who found it closed waits before
trying again, up to ten seconds (librdkafka's `reconnect.backoff.max.ms`), and what other brokers
tell meanwhile does not shorten that. Were the next broker to go at once, such a client would have
none: it waits, and librdkafka forgets all brokers and begins anew, in which consumers may hang for
ever (seen with 2.16.0; https://github.com/confluentinc/librdkafka/issues/5476).

How a node is stopped and started is the caller's business (`Restart`): a command of the
operator's, or a signal to a process of `quire up`, which starts it again by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from client.errors import QuireError
from ops.admin_api import AdminApi
from ops.admin_errors import AdminError, AdminUnreachable

POLL_S: Final = 0.1
SETTLE_S: Final = 2.5
"""Writers probe a bookie that they suspended once a second: by then they have noticed it."""
CLIENTS_BACK_S: Final = 11.0
"""Between two brokers: the longest wait of a client before it connects again, and a second."""


class RestartFailed(QuireError):
    """A step did not end in time; the nodes after it were not touched."""


class Node(NamedTuple):
    """A broker or bookie, as commands are told of it."""

    kind: str
    """broker or bookie."""
    id: str
    host: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class Restarted(NamedTuple):
    """What restarting one node took, in seconds."""

    node: Node
    unload_s: float
    """Until it led nothing; 0 for bookies."""
    restart_s: float
    """What the operator's command took: stop, and at least the beginning of the start."""
    ready_s: float
    """From then on until it served."""
    whole_s: float
    """From then on until the cluster was whole."""


Restart = Callable[[Node], Awaitable[None]]
"""Stops and starts a node; returns once the old process is gone. Raises QuireError."""


class Progress(Protocol):
    """Where steps are told."""

    def __call__(self, text: str) -> None:
        """Say one line."""


class RollingRestart:
    """Restarts nodes, one after the other. Not for concurrent use."""

    def __init__(
        self,
        api: AdminApi,
        restart: Mapping[str, Restart],
        say: Progress,
        *,
        timeout_s: float = 120.0,
        settle_s: float = SETTLE_S,
        clients_back_s: float = CLIENTS_BACK_S,
    ) -> None:
        """`restart`: by kind, for those kinds that are to be restarted. `timeout_s`: per step."""
        self._api = api
        self._restart = restart
        self._say = say
        self._timeout_s = timeout_s
        self._settle_s = settle_s
        self._clients_back_s = clients_back_s

    async def run(self) -> list[Restarted]:
        """Restart every node of the wanted kinds. Raises RestartFailed, AdminError."""
        await self.wait_whole("before anything is touched")
        done = []
        if "bookie" in self._restart:
            for row in await self._api.list("/bookies"):
                if row["state"] != "down":
                    done.append(await self._restart_bookie(row))
        if "broker" in self._restart:
            for position, row in enumerate(await self._api.list("/brokers")):
                if position:
                    await asyncio.sleep(self._clients_back_s)
                    await self.wait_whole("before the next broker")
                done.append(await self._restart_broker(row))
        return done

    async def wait_whole(self, when: str) -> None:
        """Wait until the cluster is whole. Raises RestartFailed, saying what is not."""
        await _until(self._flaws, f"the cluster is not whole {when}", self._timeout_s)

    async def _restart_broker(self, row: Mapping[str, Any]) -> Restarted:
        broker_id = row["broker_id"]
        node = Node("broker", str(broker_id), row["host"])
        path = f"/brokers/{broker_id}"
        before = await self._api.get(path)
        times = [time.monotonic()]
        self._say(f"{node}: giving its partitions away")
        await self._api.send("PUT", f"{path}/unloaded")
        await _until(lambda: _leads(self._api, path), f"{node} is not unloaded", self._timeout_s)
        times.append(time.monotonic())
        self._say(f"{node}: restarting")
        await self._restart["broker"](node)
        times.append(time.monotonic())
        await _until(
            lambda: self._not_back(path, before["incarnation"]),
            f"{node} is not back",
            self._timeout_s,
        )
        times.append(time.monotonic())
        await self.wait_whole(f"after the restart of {node}")
        times.append(time.monotonic())
        return self._told(node, times)

    async def _restart_bookie(self, row: Mapping[str, Any]) -> Restarted:
        bookie_id = row["bookie_id"]
        node = Node("bookie", bookie_id, str(row["address"] or bookie_id).rpartition(":")[0])
        now_s = time.monotonic()
        times = [now_s, now_s]
        self._say(f"{node}: restarting")
        await self._restart["bookie"](node)
        times.append(time.monotonic())
        await _until(
            lambda: self._not_registered(bookie_id, row["registered_ms"]),
            f"{node} is not back",
            self._timeout_s,
        )
        times.append(time.monotonic())
        await asyncio.sleep(self._settle_s)
        await self.wait_whole(f"after the restart of {node}")
        times.append(time.monotonic())
        return self._told(node, times)

    def _told(self, node: Node, times: list[float]) -> Restarted:
        spans = [later - earlier for earlier, later in itertools.pairwise(times)]
        done = Restarted(node, *spans)
        self._say(f"{node}: serves again ({sum(spans):.1f} s)")
        return done

    # --- what is not yet as it should be; empty: all is ------------------------------------

    async def _not_back(self, path: str, old_incarnation: str) -> str:
        try:
            broker = await self._api.get(path)
        except AdminError as error:
            if error.status not in (404, 502, 503, 504):
                raise
            return str(error)
        if broker["incarnation"] == old_incarnation:
            return "its process is the old one"
        live = broker["live"]
        if live is None:
            return str(broker["silence"])
        return "" if live["is_ready"] else "; ".join(live["not_ready"][:3])

    async def _not_registered(self, bookie_id: str, old_ms: int | None) -> str:
        row = await self._bookie(bookie_id)
        if row is None or row["state"] == "down":
            return "it is not registered"
        if row["registered_ms"] == old_ms:
            return "its registration is that of the old process"
        return ""

    async def _bookie(self, bookie_id: str) -> Any:
        rows = await self._api.list("/bookies")
        return next((row for row in rows if row["bookie_id"] == bookie_id), None)

    async def _flaws(self) -> str:
        about = await self._api.get("/cluster")
        brokers, partitions, bookies = about["brokers"], about["partitions"], about["bookies"]
        lacking = (await self._api.get("/under-replication", limit=1))["items"]
        flaws = [
            *(f"broker {each} cannot be reached: {why}" for each, why in brokers["silent"].items()),
            *(f"broker {each} is not ready" for each in brokers["not_ready"]),
            *(f"broker {each} is unloaded" for each in brokers["unloaded"]),
        ]
        if partitions["led"] < partitions["count"]:
            flaws.append(f"{partitions['count'] - partitions['led']} partitions have no leader")
        flaws += [
            f"{bookies[state]} bookies are {state.replace('_', '-')}"
            for state in ("down", "read_only")
            if bookies[state]
        ]
        if lacking:
            flaws.append(
                f"ledger {lacking[0]['ledger_id']} and perhaps others lack copies"
                " (`quire autorecovery status` shows them)"
            )
        return "; ".join(flaws)


async def wait_unloaded(api: AdminApi, broker_id: int, timeout_s: float) -> None:
    """Wait until a broker leads nothing. Raises RestartFailed."""
    path = f"/brokers/{broker_id}"
    await _until(lambda: _leads(api, path), f"broker {broker_id} is not unloaded", timeout_s)


async def _leads(api: AdminApi, path: str) -> str:
    brokers = await api.list("/brokers")
    if all(broker["is_unloaded"] for broker in brokers):
        return ""  # nobody can take what it leads: a cluster of one broker
    live = (await api.get(path))["live"]
    if live is None:
        return "it cannot be reached"
    led = live["partitions_led"] + live["partitions_opening"]
    return f"it still leads {led} partitions" if led else ""


async def _until(flaw: Callable[[], Awaitable[str]], otherwise: str, timeout_s: float) -> None:
    """Poll until `flaw` has nothing to say; any broker may be away for a moment."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            found = await flaw()
        except AdminUnreachable as error:
            found = str(error)
        except AdminError as error:
            if error.status not in (502, 503, 504):
                raise
            found = str(error)
        if not found:
            return
        if time.monotonic() > deadline_s:
            raise RestartFailed(f"{otherwise} after {timeout_s:g} s: {found}")
        await asyncio.sleep(POLL_S)

"""A consumer of a group as Kafka clients behave, over plain requests, for simulations.

It finds its coordinator, joins, assigns if it leads, syncs, reads the committed offsets of its
partitions, and then heartbeats and commits the next offset of each until it is told to rejoin.
Coordinator errors make it look again and go on with what it has; only errors about itself make
it join anew. What it learns goes to a `History`, the judge of all members together.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.simulation.machine.loop import SimLoop, Violation

GROUP = "g"
TOPIC = "t"
PARTITIONS = 6
PORT = 9092

_RETRY = {"coordinator_not_available", "coordinator_load_in_progress", "not_coordinator"}
_LOST = {"unknown_member_id", "fenced_instance_id"}
_PAUSE_S = 0.3
_SILENCE_S = 4.0


class History:
    """What all members were told; a contradiction ends the schedule."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._owners: dict[tuple[int, int], str] = {}
        self.acknowledged = dict.fromkeys(range(PARTITIONS), -1)
        self.stable: dict[str, int] = {}
        """Member -> generation it works in at present."""
        self._unanswered: Counter[tuple[int, int]] = Counter()

    def owns(self, member: str, generation: int, partitions: list[int]) -> None:
        """T12: within a generation a partition has one owner."""
        self.stable[member] = generation
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self._fail(f"T12 {owner} and {member} own {partition} in {generation}")

    def sent(self, partition: int, offset: int) -> None:
        """A commit leaves. If its connection breaks, it may arrive behind later ones: no broker
        can tell such a late commit from an application that went back on purpose."""
        self._unanswered[partition, offset] += 1

    def answered(self, partition: int, offset: int, *, stored: bool) -> None:
        """T11: acknowledged commits only grow, since each owner begins where the last ended."""
        self._unanswered[partition, offset] -= 1
        if not stored:
            return
        if offset <= self.acknowledged[partition]:
            self._fail(f"T11 {offset} acknowledged after {self.acknowledged[partition]}")
        self.acknowledged[partition] = offset

    def fetched(self, partition: int, floor: int, offset: int) -> None:
        """T11: a fetch returns at least what was acknowledged before it was sent."""
        if offset >= floor:
            return
        if not self._unanswered[partition, offset]:
            self._fail(f"T11 fetched {offset}, acknowledged before: {floor}")
        self.acknowledged[partition] = offset

    def _fail(self, text: str) -> None:
        self._loop.fail(Violation(text))


class Refused(Exception):
    """An error code."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


async def watch(hosts: list[str], history: History, rng: random.Random) -> None:
    """Read the group's offsets for ever, wherever any broker says that its coordinator is."""
    wanted = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]
    while True:
        await asyncio.sleep(0.2 * rng.random())
        try:
            client = await find_coordinator(hosts[rng.randrange(len(hosts))])
            for _ in range(3):
                floors = dict(history.acknowledged)
                client.send(
                    ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=wanted, require_stable=False
                )
                answer = await client.receive(_SILENCE_S)
                if answer.error_code:
                    break
                for row in answer.topics[0].partitions:
                    history.fetched(
                        row.partition_index, floors[row.partition_index], row.committed_offset
                    )
                await asyncio.sleep(rng.random())
            await client.close()
        except (Refused, OSError, asyncio.IncompleteReadError, TimeoutError):
            continue


LogIn = Callable[[WireClient], Coroutine[Any, Any, None]]


async def find_coordinator(host: str, log_in: LogIn | None = None) -> WireClient:
    """Ask a broker for the group's coordinator and connect to it. Raises Refused, OSError."""
    async with asyncio.timeout(_SILENCE_S):
        asked = await WireClient.connect(PORT, host)
        if log_in is not None:
            await log_in(asked)
        answer = await asked.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[GROUP], key_type=0)
        await asked.close()
        (found,) = answer.coordinators
        if found.error_code:
            raise Refused(found.error_code.name)
        client = await WireClient.connect(PORT, found.host)
        if log_in is not None:
            await log_in(client)
        return client


class Member:
    """One consumer process; `run` never returns."""

    def __init__(
        self,
        name: str,
        hosts: list[str],
        history: History,
        rng: random.Random,
        *,
        static: bool,
        partitions: int = PARTITIONS,
        session_timeout_ms: int = 6_000,
    ) -> None:
        self._partitions = partitions
        self._session_timeout_ms = session_timeout_ms
        self._name = name
        self._instance = name if static else None
        self._hosts = hosts
        self._history = history
        self._rng = rng
        self.log_in: LogIn | None = None
        """What to do with a new connection; None: nothing."""
        self._client: WireClient | None = None
        self._member_id = ""
        self._generation = -1
        self._next: dict[int, int] = {}

    async def run(self) -> None:
        """Be a member for ever."""
        while True:
            try:
                await self._live()
            except Refused as refused:
                if refused.name not in _RETRY:
                    self._rejoin(forget_id=refused.name in _LOST)
                else:
                    await self._disconnect()
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._disconnect()
            await asyncio.sleep(0.05 + self._rng.random() * 0.1)

    def _rejoin(self, *, forget_id: bool) -> None:
        self._history.stable.pop(self._name, None)
        self._generation = -1
        if forget_id:
            self._member_id = ""

    async def _live(self) -> None:
        if self._client is None:
            await self._connect()
        if self._generation < 0:
            await self._join()
        while True:
            await asyncio.sleep(_PAUSE_S * (0.5 + self._rng.random()))
            steps = [None, *self._next]
            self._rng.shuffle(steps)
            for partition in steps:
                if partition is None:
                    await self._call(ApiKey.HEARTBEAT, 4, **self._me())
                else:
                    await self._commit(partition)

    # --- requests -----------------------------------------------------------------------------

    def _me(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._instance,
        }

    async def _call(
        self, key: int, version: int, *, timeout_s: float = _SILENCE_S, **fields: Any
    ) -> Any:
        client = self._client
        assert client is not None
        client.send(key, version, **fields)
        answer = await client.receive(timeout_s)
        code = getattr(answer, "error_code", 0)
        if code:
            if code.name == "member_id_required":
                self._member_id = answer.member_id
            raise Refused(code.name)
        return answer

    async def _connect(self) -> None:
        host = self._hosts[self._rng.randrange(len(self._hosts))]
        self._client = await find_coordinator(host, self.log_in)

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _join(self) -> None:
        joined = await self._call(
            ApiKey.JOIN_GROUP, 9, timeout_s=20.0, group_id=GROUP,
            session_timeout=self._session_timeout_ms,
            rebalance_timeout=self._session_timeout_ms + 2_000, member_id=self._member_id,
            group_instance_id=self._instance, protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
        )  # fmt: skip
        self._member_id = joined.member_id
        self._generation = joined.generation_id
        try:
            await self._sync(joined)
        except (Refused, OSError, asyncio.IncompleteReadError, TimeoutError):
            self._rejoin(forget_id=False)
            raise

    async def _sync(self, joined: Any) -> None:
        shares: dict[str, list[int]] = {one.member_id: [] for one in joined.members}
        if shares and not joined.skip_assignment:
            names = list(shares)
            self._rng.shuffle(names)
            for partition in range(self._partitions):
                shares[names[partition % len(names)]].append(partition)
        synced = await self._call(
            ApiKey.SYNC_GROUP, 5, timeout_s=20.0, **self._me(), protocol_type="consumer",
            protocol_name="range",
            assignments=[
                {"member_id": name, "assignment": bytes(share)} for name, share in shares.items()
            ],
        )  # fmt: skip
        mine = list(synced.assignment)
        floors = dict(self._history.acknowledged)
        fetched = await self._call(
            ApiKey.OFFSET_FETCH, 7, group_id=GROUP, require_stable=True,
            topics=[{"name": TOPIC, "partition_indexes": mine}],
        )  # fmt: skip
        self._next = {}
        for row in fetched.topics[0].partitions:
            self._history.fetched(
                row.partition_index, floors[row.partition_index], row.committed_offset
            )
            self._next[row.partition_index] = row.committed_offset + 1
        self._history.owns(self._name, self._generation, mine)

    async def _commit(self, partition: int) -> None:
        offset = self._next[partition]
        row = {
            "partition_index": partition, "committed_offset": offset,
            "committed_leader_epoch": -1, "committed_metadata": self._name,
        }  # fmt: skip
        me = self._me()
        me["generation_id_or_member_epoch"] = me.pop("generation_id")
        self._history.sent(partition, offset)
        answer = await self._call(
            ApiKey.OFFSET_COMMIT, 9, **me, topics=[{"name": TOPIC, "partitions": [row]}]
        )
        code = answer.topics[0].partitions[0].error_code
        self._history.answered(partition, offset, stored=not code)
        if code:
            raise Refused(code.name)
        self._next[partition] = offset + 1

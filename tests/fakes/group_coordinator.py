"""One group coordinator over a fake partition, with requests in their shortest form."""

from __future__ import annotations

import asyncio

from broker.coordinator.core.connection_order import CommitOrder
from broker.coordinator.runtime import Phase
from broker.errors import (
    BrokerError,
)
from broker.groups.coordinator import Coordinator
from broker.groups.core.group_types import (
    Commit,
    GroupConfig,
    Heartbeat,
    Join,
    JoinReply,
    OffsetToCommit,
    Sync,
)
from client.ids import ConnectionId
from tests.fakes.group_topics import FakeTopics
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import VirtualClock

GROUP = "g"


class Broker:
    """One coordinator over a fake partition, with requests in their shortest form."""

    def __init__(self, log: FakeLog, *, manual: bool = False, copy_bytes_min: int = 1 << 30):
        self.partition = FakePartition(log, manual=manual)
        self._members = 0
        self.coordinator = Coordinator(
            self.partition,  # type: ignore[arg-type]
            GroupConfig(initial_rebalance_delay_ms=0),
            clock=VirtualClock(),
            new_member_id=self._new_member_id,
            topics=FakeTopics(),
            copy_bytes_min=copy_bytes_min,
            order=CommitOrder(ConnectionId(0)),
        )
        self.coordinator.start()

    def _new_member_id(self, prefix: str) -> str:
        self._members += 1
        return f"{prefix}-{self.partition.leader_epoch}-{self._members}"

    async def active(self) -> Broker:
        while self.coordinator.phase is not Phase.ACTIVE:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.01)
        return self

    def lose(self, surviving: int = 0) -> None:
        self.partition.lose(surviving)
        self.coordinator.close()

    async def join(self, member_id: str = "", *, instance_id: str | None = None) -> JoinReply:
        return await self.coordinator.join(
            Join(
                group_id=GROUP,
                member_id=member_id,
                instance_id=instance_id,
                client_id="c",
                client_host="/h",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(("range", b"\0\0\0\0\0\1\0\1t"),),
                requires_member_id=False,
                can_skip_assignment=False,
            )
        )

    async def sync(self, reply: JoinReply, assignments: dict[str, bytes] | None = None) -> bytes:
        request = Sync(
            GROUP, reply.member_id, None, reply.generation, None, None,
            tuple((assignments or {}).items()),
        )  # fmt: skip
        return (await self.coordinator.sync(request)).assignment

    def heartbeat(self, reply: JoinReply) -> None:
        self.coordinator.heartbeat(Heartbeat(GROUP, reply.member_id, None, reply.generation))

    async def commit(
        self, offset: int, *, group: str = GROUP, reply: JoinReply | None = None,
        topic: str = "t", partition: int = 0, metadata: str = "m",
    ) -> BrokerError | None:  # fmt: skip
        who = (reply.member_id, None, reply.generation) if reply else ("", None, -1)
        (outcome,) = await self.coordinator.commit(
            Commit(group, *who), [OffsetToCommit(topic, partition, offset, 3, metadata)]
        )
        return outcome

    def offset(self, *, group: str = GROUP, topic: str = "t", partition: int = 0) -> int | None:
        committed = self.coordinator.view().committed(group).get(topic, partition)
        return None if committed is None else committed.offset

    async def stable(self) -> tuple[JoinReply, JoinReply]:
        """A group of two, stable; the leader first."""
        first, second = await asyncio.gather(self.join(), self.join())
        if first.leader != first.member_id:
            first, second = second, first
        waits = asyncio.ensure_future(self.sync(second))
        assert await self.sync(first, {first.member_id: b"1", second.member_id: b"2"}) == b"1"
        assert await waits == b"2"
        return first, second


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)

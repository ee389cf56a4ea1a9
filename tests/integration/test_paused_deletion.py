"""A broker is stopped in the middle of deletions by id, and goes on when others have those names.

What it was asked to delete another broker deletes meanwhile, and makes anew under the same names:
the late steps of the first one may hit none of the new topics, whose versions begin at 0 again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.integration.cluster import LocalCluster

ROUND_TOPICS: Final = int(os.environ.get("QUIRE_PAUSED_DELETION_TOPICS", "8"))
"""Topics of one round; with 96 it is what was seen to lose 2 of 480 once."""
PAUSES_MS: Final = (2, 10, 30, 60, 120)
SETTLE_S: Final = 2.0
"""How long what was late has to do harm. Brokers look again at what is deleted much sooner."""
_TIMEOUT_MS: Final = 60_000
_PATIENCE_S: Final = 60.0


class Operator:
    """One connection to one broker, for administration."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    @classmethod
    async def at(cls, address: str) -> Operator:
        host, _, port = address.rpartition(":")
        return cls(await WireClient.connect(int(port), host))

    async def create(self, names: Sequence[str]) -> dict[str, UUID]:
        """Make topics, also those whose deletion this broker has not seen yet; return their ids."""
        made: dict[str, UUID] = {}
        while left := [name for name in names if name not in made]:
            self._client.send(
                ApiKey.CREATE_TOPICS, 7, timeout=_TIMEOUT_MS, validate_only=False,
                topics=[
                    {"name": name, "num_partitions": 1, "replication_factor": -1,
                     "assignments": [], "configs": []}
                    for name in left
                ],
            )  # fmt: skip
            for row in (await self._client.receive(_PATIENCE_S)).topics:
                if row.error_code.name == "none":
                    made[row.name] = row.topic_id
                else:
                    assert row.error_code.name == "topic_already_exists", row
        return made

    def begin_deletion(self, topic_ids: Sequence[UUID]) -> None:
        topics = [{"name": None, "topic_id": topic_id} for topic_id in topic_ids]
        self._client.send(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=_TIMEOUT_MS)

    async def end_deletion(self) -> list[str]:
        """Return how each was answered."""
        return [row.error_code.name for row in (await self._client.receive(_PATIENCE_S)).responses]

    async def ids(self, names: Sequence[str]) -> dict[str, UUID]:
        """Return the ids of the topics that there are."""
        asked: list[dict[str, Any]] = [{"name": name, "topic_id": None} for name in names]
        answer = await self._client.call(
            ApiKey.METADATA, 12, topics=asked, allow_auto_topic_creation=False
        )
        return {row.name: row.topic_id for row in answer.topics if row.error_code.name == "none"}

    async def close(self) -> None:
        await self._client.close()


@pytest.mark.timeout(300)
async def test_a_broker_that_was_stopped_while_it_deleted_hits_no_topic_made_anew(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster()
    stopped, other = [await Operator.at(at) for at in cluster.bootstrap_servers.split(",")]
    anew: dict[str, UUID] = {}
    for pause_ms in PAUSES_MS:
        names = [f"t-{pause_ms}-{number}" for number in range(ROUND_TOPICS)]
        old = await stopped.create(names)
        stopped.begin_deletion(list(old.values()))
        await asyncio.sleep(pause_ms / 1000)
        cluster.kill("broker-0", signal.SIGSTOP)
        try:
            other.begin_deletion(list(old.values()))
            assert {*await other.end_deletion()} <= {"none", "unknown_topic_id"}
            made = await other.create(names)
        finally:
            cluster.kill("broker-0", signal.SIGCONT)
        # Its session may have ended meanwhile: it may have happened, it says then.
        answers = {*await stopped.end_deletion()}
        assert answers <= {"none", "unknown_topic_id", "request_timed_out"}
        assert made.items().isdisjoint(old.items())
        anew |= made
    await asyncio.sleep(SETTLE_S)
    for operator in (other, stopped):
        assert await operator.ids(list(anew)) == anew
        await operator.close()

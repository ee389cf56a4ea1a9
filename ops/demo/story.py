"""The demonstration, step by step: publish, subscribe, kill, finish, check.

Covers the order of events. The cluster is given to it; what is counted and judged lives in
`check.py`, how it looks in `display.py`.

The kill comes in the middle of the publishing and is SIGKILL: neither the bookie nor the broker
can say goodbye. The broker is the one that leads most partitions of the topic.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from client.errors import QuireError
from client.pubsub import Publisher, TopicAdmin
from client.pubsub.topics import TopicDescription
from ops.demo.check import Checker
from ops.demo.display import Display
from ops.demo.members import Members
from ops.demo.publishing import Publication
from ops.demo.report import Report

TOPIC: Final = "standard-library"
GROUP: Final = "readers"
MEMBER_COUNT: Final = 2
PARTITION_COUNT: Final = 8
KILL_AT: Final = 0.4
"""Share of all records that have their outcome when the kill comes."""

_HOLD_AT: Final = 0.6
"""Share of the records that may be published before the kill; a large source never gets there."""

_TICK_S: Final = 0.1
_LEADER_POLLS_MAX: Final = 600
_STANDSTILL_TIMEOUT_S: Final = 60.0


class DemoError(QuireError):
    """The demonstration could not be finished."""


class Cluster(Protocol):
    """The running cluster, as far as the story needs it."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers."""

    @property
    def brokers(self) -> Mapping[int, int]:
        """Process id by broker id."""

    @property
    def bookies(self) -> Mapping[str, int]:
        """Process id by bookie id."""


class Story:
    """One run over `files`, which `source` describes."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        source: str,
        display: Display,
        *,
        folder: Path,
        started_s: float,
    ) -> None:
        """`folder` is for the members' journals; `started_s` is the loop's time of the start."""
        self._files = files
        self._source = source
        self._display = display
        self._folder = folder
        self._started_s = started_s
        self._checker = Checker(files)
        self._record_count = sum(len(self._checker.lines(name)) for name in files)
        self._publication = Publication(TOPIC, PARTITION_COUNT, self._checker, hold_at=_HOLD_AT)
        self._killed_bookie = ""
        self._killed_broker = -1
        self._led_by_killed: tuple[int, ...] = ()

    async def run(self, cluster: Cluster) -> Report:
        """Publish, receive, kill, and return what was measured.

        Raises DemoError when a subscriber ends early or nothing moves for a minute.
        """
        # Otherwise the collector stops us, to look at a million lines, and that looks like a
        # pause of the service.
        gc.freeze()
        servers = cluster.bootstrap_servers
        async with TopicAdmin(servers) as topics:
            await topics.create(TOPIC, partition_count=PARTITION_COUNT)
        self._display.say(f"topic {TOPIC} is ready with {PARTITION_COUNT} partitions")
        members = Members(
            MEMBER_COUNT, bootstrap_servers=servers, topic=TOPIC, group=GROUP, folder=self._folder
        )
        async with members:
            self._display.say(
                f"publishing {self._record_count:,} lines of {len(self._files):,} files, while "
                f"{MEMBER_COUNT} subscribers of one group read them"
            )
            with self._display.counting(self._record_count):
                await self._publish(cluster, members)
                await self._drain(servers, members)
        self._display.say("comparing what arrived with the files")
        members.judge(self._checker)
        return self._report()

    async def _publish(self, cluster: Cluster, members: Members) -> None:
        async with Publisher(
            cluster.bootstrap_servers, client_id="quire-demo", retry_backoff_ms=50
        ) as publisher:
            work = asyncio.create_task(self._publication.run(publisher, self._files))
            try:
                killed = False
                while not work.done():
                    if not killed and self._share() >= KILL_AT:
                        killed = True
                        await self._kill(cluster)
                    self._show(members)
                    await asyncio.wait([work], timeout=_TICK_S)
            finally:
                work.cancel()
            await work

    def _share(self) -> float:
        return self._publication.answered / max(1, self._record_count)

    def _show(self, members: Members) -> None:
        publication = self._publication
        self._display.count(publication.published, publication.acknowledged, members.received)
        ended = members.ended()
        if ended is not None:
            raise DemoError(ended)

    async def _kill(self, cluster: Cluster) -> None:
        """Kill -9 one bookie and the broker that leads most partitions, in this order."""
        async with TopicAdmin(cluster.bootstrap_servers) as topics:
            description = await topics.describe(TOPIC)
        leaders = Counter(p.leader for p in description.partitions if p.leader is not None)
        broker = max(cluster.brokers, key=lambda broker_id: leaders[broker_id])
        bookie = max(cluster.bookies)
        self._killed_broker, self._killed_bookie = broker, bookie
        self._led_by_killed = tuple(
            p.partition for p in description.partitions if p.leader == broker
        )
        self._publication.forget_gaps()
        self._publication.go_on()
        await asyncio.sleep(0)  # so that the lanes run, and some records are on their way
        os.kill(cluster.bookies[bookie], signal.SIGKILL)
        os.kill(cluster.brokers[broker], signal.SIGKILL)
        self._display.say(
            f"kill -9 bookie {bookie} (pid {cluster.bookies[bookie]}) and broker {broker} "
            f"(pid {cluster.brokers[broker]}), which leads {len(self._led_by_killed)} of "
            f"{PARTITION_COUNT} partitions"
        )

    async def _drain(self, servers: str, members: Members) -> None:
        """Wait until the group has read every partition to the end of its log."""
        ends = await self._end_offsets(servers)
        loop = asyncio.get_running_loop()
        received, moved_s = members.received, loop.time()
        while not members.reached(ends):
            self._show(members)
            if members.received != received:
                received, moved_s = members.received, loop.time()
            if loop.time() - moved_s > _STANDSTILL_TIMEOUT_S:
                return  # the verdict will say what is missing
            await asyncio.sleep(_TICK_S)
        self._show(members)

    async def _end_offsets(self, servers: str) -> dict[int, int]:
        async with TopicAdmin(servers) as topics:
            for _ in range(_LEADER_POLLS_MAX):
                ends = _end_offsets(await topics.describe(TOPIC))
                if ends is not None:
                    return ends
                await asyncio.sleep(_TICK_S)
        raise DemoError("a partition has no leader: the end of its log is unknown")

    def _report(self) -> Report:
        publication = self._publication
        return Report(
            verdict=self._checker.verdict(),
            source=self._source,
            members=MEMBER_COUNT,
            size=publication.acknowledged_size,
            publish_s=publication.ended_s - publication.started_s,
            total_s=asyncio.get_running_loop().time() - self._started_s,
            killed_bookie=self._killed_bookie,
            killed_broker=self._killed_broker,
            led_by_killed=self._led_by_killed,
            gaps_s=tuple(publication.gaps_s),
            failures=tuple(str(failure) for failure in publication.failures[:10]),
        )


def _end_offsets(description: TopicDescription) -> dict[int, int] | None:
    """Return where each log ends, or None while a partition has no leader to say so."""
    ends = {}
    for partition in description.partitions:
        if partition.log_end_offset is None:
            return None
        ends[partition.partition] = partition.log_end_offset
    return ends

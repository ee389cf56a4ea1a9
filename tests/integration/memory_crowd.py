"""Fills whatever can be filled from outside, on a real cluster, and looks at what its nodes hold.

    python -m tests.integration.memory_crowd [--connections 2000]

The crowd sends and never reads, sends half of what it claims, waits in long polls and vanishes, and
publishes while bookies stand still; half of it on a broker, half on a bookie. Meanwhile the gauges
of `ops/MEMORY.md` and the resident size of every node are read again and again. At the end comes a
table of the most that was seen, beside each limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from kio.schema.errors import ErrorCode

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from client.ids import EntryId, LedgerId
from client.ledger import connect
from client.ledger.config import LedgerClientConfig
from client.pubsub import TopicAdmin
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    BatchReadRequest,
    ListEntriesRequest,
    ReadRequest,
)
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from ops.monitoring import memory
from tests.fakes.scrape import parse
from tests.fakes.wire_client import WireClient
from tests.integration.cluster import LocalCluster
from tests.unit.broker.front.handlers.requests import fetch_fields

_MIB: Final = 1 << 20
FILLED: Final = (
    ("broker-0", "quire_broker_unfinished_bytes"),
    ("broker-0", "quire_broker_unsent_bytes"),
    ("broker-0", "quire_broker_group_requests_bytes"),
    ("broker-0", "quire_broker_group_members_bytes"),
    ("bookie-0", "quire_bookie_unfinished_bytes"),
    ("bookie-0", "quire_bookie_unsent_bytes"),
    ("bookie-0", "quire_bookie_other_requests"),
    ("bookie-0", "quire_bookie_long_polls"),
)
"""What the crowd fills by itself."""
IN_FLIGHT: Final = ("broker-0", "quire_broker_in_flight_bytes")
"""What it fills while bookies stand still."""
HARDLY_FILLED: Final[Mapping[str, str]] = {
    "quire_broker_fetch_reading_bytes": "as much as the disk is behind, which differs",
    "quire_broker_fetch_session_partitions": "unit/broker/front/core/test_fetch_sessions.py",
    "quire_broker_share_session_partitions": "unit/broker/front/core/test_share_sessions.py",
    "quire_broker_compaction_bytes": "unit/broker/compaction/test_compactor.py",
    "quire_broker_offload_bytes": "unit/broker/offload/test_offloader.py",
    "quire_broker_archive_bytes": "unit/broker/partition/test_archive.py",
    "quire_broker_login_bytes": "unit/broker/security/test_logins.py",
    "quire_broker_quota_owners": "unit/broker/security/test_quotas.py",
    "quire_broker_users": "unit/broker/front/test_kept_names.py",
    "quire_broker_quota_entities": "the same",
    "quire_broker_acls": "the same",
    "quire_broker_client_metrics_series": "counted by series; tests of client metrics do it",
    "quire_broker_follower_partitions": "unit/broker/leadership/test_followers.py",
    "quire_broker_tail_cache_bytes": "full as soon as the topic is larger than it",
    "quire_broker_read_ahead_bytes": "unit/broker/partition/test_read_ahead.py",
    "quire_ledger_batch_buffer_bytes": "unit/client/wire/test_reused_buffers.py",
    "quire_broker_connections": "unit/broker/front/test_server.py",
    "quire_broker_admin_body_bytes": "hostile/test_http.py",
    "quire_bookie_pending_bytes": "as much as the disk is behind, which differs",
    "quire_bookie_cache_bytes": "full as soon as more entries came than it takes",
    "quire_bookie_index_bytes": "LevelDB's own, and told by it",
    "quire_bookie_batch_read_bytes": "as much as the disk is behind, which differs",
    "quire_bookie_adds_in_progress": "as much as the disk is behind: unit/bookie/server",
    "quire_bookie_reads_in_progress": "as much as the disk is behind, which differs",
    "quire_bookie_strangers_bytes": "hostile/test_frames.py",
    "quire_bookie_connections": "unit/bookie/server/test_server.py",
    "quire_bookie_admin_body_bytes": "the same code as a broker's",
}
"""What the crowd need not fill: why not, or where that is tested."""
TOPIC: Final = "crowd"
RECORD_BYTES: Final = 200_000
ENTRIES: Final = 64
LONG_ENTRIES: Final = 10_000
STOPPED_S: Final = 3.0
"""How long bookies stand still: less than brokers wait for an answer."""

BROKER: Final[Mapping[str, int]] = {
    "in_flight_bytes_max": 32 * _MIB,
    "connection_in_flight_bytes_max": 8 * _MIB,
    "log_in_flight_bytes_max": 16 * _MIB,
    "partition_hold_bytes_max": 8 * _MIB,
    "request_bytes_max": 4 * _MIB,
    "control_request_bytes_max": _MIB,
    "unfinished_bytes_max": 16 * _MIB,
    "unread_bytes_max": 32 * _MIB,
    "group_requests_bytes_max": 8 * _MIB,
    "group_members_bytes_max": _MIB // 2,
    "fetch_bytes_max": 8 * _MIB,
    "fetch_reading_bytes_max": 16 * _MIB,
    "tail_cache_bytes_max": 8 * _MIB,
    "read_ahead_bytes_max": 8 * _MIB,
}
LEDGER: Final[Mapping[str, int]] = {"writer_in_flight_bytes_max": 4 * _MIB, "batch_buffers_max": 4}
BOOKIE: Final[Mapping[str, int]] = {
    "unfinished_bytes_max": 16 * _MIB,
    "unread_bytes_max": 32 * _MIB,
    "unsent_bytes_max": _MIB,
    "pending_bytes_max": 8 * _MIB,
    "cache_bytes_max": 4 * _MIB,
    "batch_reads_bytes_max": 16 * _MIB,
    "reader_threads": 1,
    "adds_in_flight_max": 5_000,
    "reads_in_flight_max": 2_000,
    "other_requests_max": 400,
    "long_polls_max": 400,
}


def configurations(connections_max: int) -> tuple[BrokerConfig, BookieConfig]:
    """Return the small limits: what a crowd of a few hundred can fill."""
    broker = BrokerConfig(
        connections_max=connections_max, **BROKER, ledger=LedgerClientConfig(**LEDGER)
    )
    bookie = BookieConfig(data_dir=Path("data"), connections_max=connections_max, **BOOKIE)
    return broker, bookie


def environ(connections_max: int) -> dict[str, str]:
    """Return the same for the nodes of a `LocalCluster`."""
    limit = {"connections_max": connections_max}
    named = {
        **{f"QUIRE_BROKER_{name}": value for name, value in (limit | BROKER).items()},
        **{f"QUIRE_BROKER_LEDGER_{name}": value for name, value in LEDGER.items()},
        **{f"QUIRE_BOOKIE_{name}": value for name, value in (limit | BOOKIE).items()},
    }
    return {name.upper(): str(value) for name, value in named.items()}


class Mute(asyncio.Protocol):
    """One of the crowd: says something and reads nothing."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()
        transport.write(self._says)


def said_to_broker() -> list[bytes]:
    """Return what the crowd says to the broker, in turn."""
    client = WireClient(None, None)  # type: ignore[arg-type]  # it only makes frames
    data = build_batch([Record(None, os.urandom(RECORD_BYTES), int(time.time() * 1000))])

    def fetches(count: int, offset: int, **more: int) -> bytes:
        fields = fetch_fields(offset, topic=TOPIC, bytes_max=64 * _MIB, **more)
        return client.frame(ApiKey.FETCH, 12, fields) * count

    def produces(count: int) -> bytes:
        fields = {
            "transactional_id": None, "acks": -1, "timeout": 30_000,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": 0, "records": data}]}
            ],
        }  # fmt: skip
        return client.frame(ApiKey.PRODUCE, 9, fields) * count

    join = client.frame(
        ApiKey.JOIN_GROUP, 3,
        {
            "group_id": TOPIC, "session_timeout": 30_000, "rebalance_timeout": 30_000,
            "member_id": "", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(200_000)}],
        },
    )  # fmt: skip
    half = struct.pack(">i", 2 * _MIB) + bytes(_MIB)
    question = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)
    return [
        fetches(30, 0, partition_bytes_max=8 * _MIB),
        half,
        fetches(1, 10**6, wait_ms=60_000) + fetches(1, ENTRIES, wait_ms=60_000),
        produces(20),
        join,
        question * 2_000,
    ]


def said_to_bookie(ledger_id: LedgerId, long_id: LedgerId) -> list[bytes]:
    """Return what the crowd says to the bookie, in turn: about a ledger, and one of many entries.

    What is in the long one takes so long to list that requests wait for it however fast the
    machine is; the other's lists would be gone before anybody looks.
    """
    reads = [
        b"".join(v2.encode_request(ReadRequest(ledger_id, EntryId(number % ENTRIES))))
        for number in range(1000)
    ]
    batches = [
        b"".join(v2.encode_request(BatchReadRequest(ledger_id, EntryId(0), number, 0, 5 * _MIB)))
        for number in range(50)
    ]
    lists = [b"".join(v3.encode_request(ListEntriesRequest(long_id), n)) for n in range(300)]
    poll = ReadRequest(ledger_id, LAST_ENTRY, previous_lac=EntryId(ENTRIES), timeout_ms=60_000)
    polls = [b"".join(v3.encode_request(poll, number)) for number in range(20)]
    half = struct.pack(">i", 2 * _MIB) + bytes(_MIB)
    return [b"".join(reads), half, b"".join(batches), b"\x00", b"".join(lists), b"".join(polls)]


class Seen(NamedTuple):
    """The most that was seen of one gauge, or of a resident size (in MiB), and its limit."""

    node: str
    what: str
    most: float
    limit: float

    @property
    def is_within(self) -> bool:
        """Whether the limit held."""
        return self.most <= self.limit


class Watch:
    """Reads gauges and sizes of every node until it is stopped."""

    def __init__(self, cluster: LocalCluster, connections_max: int) -> None:
        self._cluster = cluster
        broker, bookie = configurations(connections_max)
        self._configs: dict[str, BrokerConfig | BookieConfig] = {}
        self._urls: dict[str, str] = {}
        for kind, config in (("broker", broker), ("bookie", bookie)):
            for index, node in enumerate(cluster.about[f"{kind}s"]):
                name = f"{kind}-{index}"
                self._configs[name] = config
                self._urls[name] = f"http://127.0.0.1:{node['admin']}/metrics"
        self._most: dict[tuple[str, str], float] = {}
        self.paused: set[str] = set()
        """Nodes that stand still: nobody asks them."""

    async def run(self) -> None:
        """Look, again and again."""
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self.look(session)
                await asyncio.sleep(0.2)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Read all numbers once."""
        for name, url in self._urls.items():
            self._note(name, "resident", resident_bytes(self._cluster.pid_of(name)))
            if name in self.paused:
                continue
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url) as answer:
                    found = parse(await answer.text())
                for buffer in rows_of(self._configs[name]):
                    if buffer.gauge in found:
                        self._note(name, buffer.gauge, found[buffer.gauge])

    async def filled(self, *gauges: tuple[str, str], patience_s: float = 20.0) -> None:
        """Return when a quarter of each limit was seen at some time, or when it takes too long."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            most = {(one.node, one.what): one for one in self.seen()}
            if all(one in most and most[one].most > most[one].limit / 4 for one in gauges):
                return
            await asyncio.sleep(0.2)

    def _note(self, name: str, what: str, value: float) -> None:
        self._most[name, what] = max(value, self._most.get((name, what), 0.0))

    def seen(self) -> list[Seen]:
        """Return the most of everything."""
        found = []
        for name, config in self._configs.items():
            for buffer in rows_of(config):
                most = self._most.get((name, buffer.gauge))
                if most is not None:
                    found.append(Seen(name, buffer.gauge, most, limit_of(buffer, config)))
            limit = memory.BASE_BYTES + memory.sum_bytes(config)
            found.append(Seen(name, "resident", self._most.get((name, "resident"), 0.0), limit))
        return found


def rows_of(config: BrokerConfig | BookieConfig) -> Sequence[memory.Buffer]:
    """Return the buffers with a gauge that says what the limit is about."""
    rows = memory.BROKER if isinstance(config, BrokerConfig) else memory.BOOKIE
    return [row for row in rows if row.gauge and "reader_threads" not in row.most[0]]


def limit_of(buffer: memory.Buffer, config: BrokerConfig | BookieConfig) -> int:
    """Return the most that a gauge may say: bytes, or a number of things."""
    if buffer.gauge.endswith("_bytes"):
        most = memory.most_bytes(buffer, config)
        if buffer.gauge == "quire_bookie_cache_bytes":  # it holds what is not indexed, too
            most += memory.value_of(config, "pending_bytes_max")
            most += memory.value_of(config, "frame_bytes_max")
        return most
    (counted,) = [factor for factor in buffer.most[0] if isinstance(factor, str)]
    return memory.value_of(config, counted)


def resident_bytes(pid: int) -> int:
    """Return what a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.asynccontextmanager
async def crowd(says: Sequence[bytes], port: int, count: int) -> AsyncIterator[list[Mute]]:
    """Connect so many, from many addresses of this machine."""
    loop = asyncio.get_running_loop()
    members: list[Mute] = []
    for number in range(count):
        address = (f"127.0.{number % 4}.{2 + number % 200}", 0)
        with contextlib.suppress(ConnectionError):
            _, member = await loop.create_connection(
                lambda number=number: Mute(says[number % len(says)]),
                "127.0.0.1", port, local_addr=address,
            )  # fmt: skip
            members.append(member)
    try:
        yield members
    finally:
        for member in members:
            member.transport.abort()


async def coordinated(port: int) -> None:
    """Wait until the crowd's group has a coordinator."""
    client = await WireClient.connect(port)
    async with asyncio.timeout(60):
        while True:
            await client.call(
                ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[TOPIC, TOPIC]
            )
            beat = await client.call(
                ApiKey.HEARTBEAT, 0, group_id=TOPIC, generation_id=1, member_id="nobody"
            )
            if beat.error_code is ErrorCode.unknown_member_id:
                break
            await asyncio.sleep(0.2)
    await client.close()


async def fill(cluster: LocalCluster, count: int) -> list[Seen]:
    """Let a crowd loose on a cluster that has `environ`; return what was seen."""
    broker_port = int(cluster.bootstrap_servers.rpartition(":")[2])
    bookie_port = int(str(cluster.about["bookies"][0]["id"]).rpartition(":")[2])
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(TOPIC, partition_count=1)
    await coordinated(broker_port)
    async with connect(cluster.zookeeper) as ledgers:
        writer = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        for _ in range(ENTRIES):
            await writer.append(os.urandom(RECORD_BYTES))
        long = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        for _ in range(0, LONG_ENTRIES, 500):
            await asyncio.gather(*(long.append(b"") for _ in range(500)))
        for each in (writer, long):
            await each.close()
    says, asks = said_to_broker(), said_to_bookie(writer.ledger_id, long.ledger_id)
    watch = Watch(cluster, count)
    watching = asyncio.create_task(watch.run())
    try:
        async with crowd([says[3]], broker_port, 4):
            await asyncio.sleep(1.0)  # there is something to read
        async with (
            crowd(says, broker_port, count // 2),
            crowd(asks, bookie_port, count // 2) as at_bookie,
        ):
            await watch.filled(*FILLED)
            still = ("bookie-1", "bookie-2")
            for name in still:
                watch.paused.add(name)
                cluster.kill(name, signal.SIGSTOP)
            async with crowd([says[3]], broker_port, count // 4) as publishers:
                await asyncio.sleep(STOPPED_S / 2)
                for member in publishers[::2]:
                    member.transport.abort()  # what it sent is held all the same
                await asyncio.sleep(STOPPED_S / 2)
                for name in still:
                    cluster.kill(name, signal.SIGCONT)
                    watch.paused.discard(name)
                await asyncio.sleep(2.0)
            for member in at_bookie[: count // 4]:
                member.transport.abort()
            await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)
    finally:
        for name in watch.paused:
            cluster.kill(name, signal.SIGCONT)
        watching.cancel()
        await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()  # it did not look to the end
    return watch.seen()


def shown(seen: Sequence[Seen]) -> str:
    """Return a table for people."""
    lines = ["| node | what | most | limit |", "|---|---|---|---|"]
    for one in seen:
        is_bytes = one.what == "resident" or one.what.endswith("_bytes")
        most, limit = (
            (f"{number / _MIB:,.1f} MiB" if is_bytes else f"{number:,.0f}")
            for number in (one.most, one.limit)
        )
        mark = "" if one.is_within else " **beyond**"
        lines.append(f"| {one.node} | `{one.what}` | {most} | {limit}{mark} |")
    return "\n".join(lines)


def main() -> int:
    """Run it once; the exit code says whether every limit held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    count = parser.parse_args().connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    del soft
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder), brokers=1, environ=environ(count))
        with cluster:
            seen = asyncio.run(fill(cluster, count))
    print(shown(seen))
    return 0 if all(one.is_within for one in seen) else 1


if __name__ == "__main__":
    sys.exit(main())

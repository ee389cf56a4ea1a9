"""What incremental fetch sessions (KIP-227) save: a broker's CPU time and bytes per 1,000 fetches.

    python -m ops.bench.fetch_sessions [--partitions 1000] [--fetches 500] [--rounds 5]

One broker and one bookie are started, and one client fetches from all partitions of a topic: with a
session, which is told what changed, and without, naming everything each time. Both are tried in
turn, in each round, with nothing new to tell and with one new batch before each fetch. What it
costs to produce those batches is measured alone and taken off. CPU time is that of the
broker's process, user and system, out of /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import socket
import statistics
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from client.wire.kafka.produce_client import VERSION as PRODUCE_VERSION
from client.wire.kafka.produce_client import encode_produce
from client.wire.kafka.requests import (
    decode_response_body,
    encode_request_body,
    request_frame,
    split_response,
)
from ops.bench import topics
from ops.bench.peers.quire import Silent
from ops.bench.process_cpu import cpu_s
from ops.local.cluster import LocalCluster, LocalConfig, Programs
from ops.ports import pick_free_runs

_TOPIC: Final = "orders"
_FETCH_VERSION: Final = 12
_NO_SESSION, _FULL = -1, 0
"""Session epochs of requests that name everything: the second one wants a session."""
_WARM_UP: Final = 50
_TIMEOUT_S: Final = 60.0
_VALUE: Final = bytes(100)
_SIZE: Final = struct.Struct(">i")


class Cost(NamedTuple):
    """Of 1,000 fetches."""

    cpu_s: float
    asked_bytes: float
    told_bytes: float


class _Connection:
    """One connection to the broker, on which one request at a time is under way."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self.asked_bytes = self.told_bytes = 0

    def call(self, key: ApiKey, version: int, body: bytes) -> Any:
        frame = request_frame(key, version, 0, "bench", body)
        self._socket.sendall(frame)
        answer = self._stream.read(_SIZE.unpack(self._stream.read(_SIZE.size))[0])
        self.asked_bytes += len(frame)
        self.told_bytes += len(answer) + _SIZE.size
        _, found = split_response(key, version, memoryview(answer))
        return decode_response_body(key, version, found)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class _Consumer:
    """Fetches from all partitions, in a session or without."""

    def __init__(self, port: int, offsets: dict[int, int], *, has_session: bool) -> None:
        self._connection = _Connection(port)
        self._offsets = offsets
        """Where it goes on, of each partition; all consumers of the bench share them."""
        self._known = dict(offsets)
        self._has_session = has_session
        self._session_id, self._epoch = 0, _FULL if has_session else _NO_SESSION

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes asked and told so far."""
        return self._connection.asked_bytes, self._connection.told_bytes

    def fetch(self, records_min: int) -> None:
        """Fetch once; with nothing to tell the broker answers at once."""
        is_full = self._epoch in (_FULL, _NO_SESSION)
        rows = [
            {"partition": number, "current_leader_epoch": -1, "fetch_offset": offset,
             "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
            for number, offset in self._offsets.items()
            if is_full or self._known[number] != offset
        ]  # fmt: skip
        self._known.update(self._offsets)
        answer = self._connection.call(ApiKey.FETCH, _FETCH_VERSION, encode_request_body(
            ApiKey.FETCH, _FETCH_VERSION, {
                "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 50 << 20,
                "isolation_level": 0, "session_id": self._session_id,
                "session_epoch": self._epoch, "forgotten_topics_data": [], "rack_id": "",
                "topics": [{"topic": _TOPIC, "partitions": rows}] if rows else [],
            }))  # fmt: skip
        found = [one for topic in answer.responses for one in topic.partitions]
        failed = [one for one in found if one.error_code]
        if int(answer.error_code) or failed:
            raise click.ClickException(f"a fetch failed: {answer.error_code}, {failed[:1]}")
        news = [one.partition_index for one in found if one.records]
        if len(news) != records_min:
            raise click.ClickException(f"{len(news)} partitions gave records, not {records_min}")
        for number in news:
            self._offsets[number] += 1
        if self._has_session:
            self._session_id, self._epoch = answer.session_id, self._epoch + 1

    def close(self) -> None:
        self._connection.close()


class _Bench:
    def __init__(self, port: int, pid: int, partitions: int, fetches: int) -> None:
        self._port, self._pid, self._fetches = port, pid, fetches
        self._offsets = dict.fromkeys(range(partitions), 1)  # each has a record
        self._turns = itertools.cycle(range(partitions))
        self._producer = _Connection(port)
        self._batch = build_batch([Record(None, _VALUE, 0)])

    def produce(self) -> int:
        """Write one batch to the next partition, and return that."""
        partition = next(self._turns)
        body = encode_produce(-1, 30_000, {_TOPIC: [(partition, self._batch)]})
        answer = self._producer.call(ApiKey.PRODUCE, PRODUCE_VERSION, body)
        found = answer.responses[0].partition_responses[0]
        if found.error_code:
            raise click.ClickException(f"produce failed: {found.error_code}")
        return partition

    def producing(self) -> Cost:
        """Measure the batches alone; no consumer gets them."""
        return self._measure(self._skip, lambda: (0, 0))

    def _skip(self) -> None:
        self._offsets[self.produce()] += 1

    def fetching(self, *, has_session: bool, is_news: bool) -> Cost:
        """Measure fetches of one kind, with a batch before each or with none."""
        consumer = _Consumer(self._port, self._offsets, has_session=has_session)

        def once() -> None:
            if is_news:
                self.produce()
            consumer.fetch(int(is_news))

        try:
            return self._measure(once, lambda: consumer.traffic)
        finally:
            consumer.close()

    def _measure(self, once: Callable[[], None], traffic: Callable[[], tuple[int, int]]) -> Cost:
        for _ in range(_WARM_UP):
            once()
        began_s, (asked, told) = cpu_s([self._pid]), traffic()
        for _ in range(self._fetches):
            once()
        more_asked, more_told = traffic()
        each = 1_000 / self._fetches
        took_s = cpu_s([self._pid]) - began_s
        return Cost(took_s * each, (more_asked - asked) * each, (more_told - told) * each)


def _rounds(bench: _Bench, count: int) -> Iterator[dict[str, Cost]]:
    for _ in range(count):
        alone = bench.producing()
        found = {}
        for is_news in (False, True):
            for has_session in (True, False):
                cost = bench.fetching(has_session=has_session, is_news=is_news)
                if is_news:
                    cost = cost._replace(cpu_s=cost.cpu_s - alone.cpu_s)
                what = "one new batch" if is_news else "nothing new"
                found[f"{what}, {'session' if has_session else 'all named'}"] = cost
        click.echo("; ".join(f"{what}: {one.cpu_s:.2f} s" for what, one in found.items()), err=True)
        yield found


async def _run(partitions: int, fetches: int, rounds: int) -> list[dict[str, Cost]]:
    kafka, bookie, admin, zookeeper = pick_free_runs(1, 1, 101, 1)
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        config = LocalConfig(
            data=Path(folder), bookies=1, brokers=1, kafka_port=kafka, bookie_port=bookie,
            admin_port=admin, zookeeper_port=zookeeper, no_restart=True,
        )  # fmt: skip
        cluster = LocalCluster(config, Silent(), Programs())
        try:
            await cluster.start()
            about: Mapping[str, Any] = cluster.describe()
            await asyncio.to_thread(_create, about["bootstrap_servers"], partitions)
            bench = _Bench(kafka, about["brokers"][0]["pid"], partitions, fetches)
            return await asyncio.to_thread(lambda: list(_rounds(bench, rounds)))
        finally:
            await cluster.stop()


def _create(servers: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(_TOPIC, partitions, 1)], request_timeout=_TIMEOUT_S)
    made[_TOPIC].result(_TIMEOUT_S)
    asyncio.run(topics.write_to_all(servers, {_TOPIC: partitions}))


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.fetch_sessions")
    parser.add_argument("--partitions", type=int, default=1_000, help="of the one topic")
    parser.add_argument("--fetches", type=int, default=500, help="in each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="all four are tried in each")
    told = parser.parse_args()
    found = asyncio.run(_run(told.partitions, told.fetches, told.rounds))
    click.echo(f"{told.partitions:,} partitions, 1,000 fetches, medians of {told.rounds} rounds:")
    for what in found[0]:
        cpu, asked, answered = (statistics.median(each) for each in zip(
            *(one[what] for one in found), strict=True))  # fmt: skip
        click.echo(
            f"  {what:26} {cpu:6.2f} s of the broker's CPU, {asked / 1e3:8.1f} B asked and"
            f" {answered / 1e3:8.1f} B told each time"
        )
    for what in ("nothing new", "one new batch"):
        ratios = sorted(
            one[f"{what}, session"].cpu_s / one[f"{what}, all named"].cpu_s for one in found
        )
        click.echo(
            f"  {what}: a session takes {statistics.median(ratios):.2f} of the CPU"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()

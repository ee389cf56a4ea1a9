"""Brokers that the Spark source asks: topics in memory, answers in the wire's own bytes.

`FakeBrokers` has the methods of `client.spark.brokers.kafka_cluster.KafkaCluster`. Logs hold whole
record batches; Fetch requests are parsed and answered by the broker's side of the wire code.
"""

import itertools
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from client.spark.brokers.kafka_cluster import EARLIEST, LATEST, PartitionLeader, TopicFacts
from client.spark.brokers.kafka_link import LinkBroken
from client.spark.splits import TopicPartition
from client.wire.kafka.batches.records import BatchHeader, pack_batch, parse_header
from client.wire.kafka.fetch import PartitionData, build_response, parse_request
from client.wire.kafka.fetch_client import VERSION

CONTROL = 0x30
TRANSACTIONAL = 0x10


def batch(base: int, count: int = 1, *, pid: int = -1, attributes: int = 0, time: int = 0) -> bytes:
    """A record batch whose records nobody decodes."""
    header = BatchHeader(base, 0, 0, 2, 0, attributes, count - 1, time, time, pid, 0, -1, count)  # type: ignore[arg-type]
    return pack_batch(header, b"r" * 10 * count)


@dataclass
class FakeLog:
    """One partition: its batches by base offset, and from where to where it can be read."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    times: dict[int, int] = field(default_factory=dict)
    """Offset by timestamp, for searches."""
    aborted: list[tuple[int, int]] = field(default_factory=list)

    def append(self, count: int = 1, **about: Any) -> None:
        self.batches.append((self.end, batch(self.end, count, **about)))
        self.end += count

    def since(self, offset: int, size_max: int) -> list[bytes]:
        found: list[bytes] = []
        for _, data in self.batches:
            if parse_header(data).next_offset > offset:
                if found and sum(map(len, found)) + len(data) > size_max:
                    break
                found.append(data)
        return found


class FakeBrokers:
    """A cluster of one broker, with one topic's worth of faults."""

    timeout_s = 5.0
    ask_timeout_s = 1.0

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.ids: dict[str, str] = {}
        self.asked: list[str] = []
        self.committed: dict[str, Mapping[TopicPartition, int]] = {}
        self.refusals: list[int] = []
        """Error codes that the next fetches are answered with."""
        self.breaks = 0
        """So many of the next fetches lose their connection."""
        self.record_bytes = 100
        self._ids = itertools.count(1)

    def create(self, topic: str, partitions: int = 1, end: int = 0) -> None:
        self.ids[topic] = str(uuid.UUID(int=next(self._ids)))
        for index in range(partitions):
            self.logs[TopicPartition(topic, index)] = FakeLog(end=end)

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        self.logs = {at: log for at, log in self.logs.items() if at.topic != topic}

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicFacts]:
        self.asked.append("topics")
        found = {}
        for name in self.ids if names is None else names:
            if name in self.ids:
                leaders = {
                    at.partition: PartitionLeader(0, 3) for at in sorted(self.logs)
                    if at.topic == name
                }  # fmt: skip
                found[name] = TopicFacts(self.ids[name], name.startswith("__"), leaders)
        return found

    def offsets(
        self, asked: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        self.asked.append("offsets")
        found = {}
        for at, which in asked.items():
            if at in self.logs:
                log = self.logs[at]
                since = [offset for time, offset in log.times.items() if time >= which]
                found[at] = {LATEST: log.end, EARLIEST: log.start}.get(which, min([*since, 2**40]))
                if found[at] == 2**40:
                    found[at] = -1
        return found

    def sizes(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        self.asked.append("sizes")
        return {at: (log.end - log.start) * self.record_bytes for at, log in self.logs.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed[group] = dict(offsets)

    def leader(self, at: TopicPartition) -> PartitionLeader:
        return PartitionLeader(0, 3)

    def link(self, broker_id: int) -> Any:
        return SimpleNamespace(ask_raw=self._fetch)

    def drop(self, link: Any) -> None:
        self.asked.append("drop")

    def close(self) -> None:
        self.asked.append("close")

    def _fetch(
        self, api: int, body: bytes, timeout_s: float, version: int, *, room_bytes: int
    ) -> memoryview:
        self.asked.append("fetch")
        assert version == VERSION
        if self.breaks:
            self.breaks -= 1
            raise LinkBroken("the connection broke")
        request = parse_request(version, memoryview(body))
        ((name, (fetch,)),) = request.topics
        log = self.logs[TopicPartition(name, fetch.partition)]
        code = self.refusals.pop(0) if self.refusals else 0
        if not log.start <= fetch.offset <= log.end:
            code = 1
        records = [] if code else log.since(fetch.offset, request.bytes_max)
        data = PartitionData(
            fetch.partition, code, log.end, log.end, log.start,
            records, sum(map(len, records)), log.aborted,
        )  # fmt: skip
        buffers, _ = build_response(version, [(name, [data])])
        return memoryview(b"".join([*map(bytes, buffers), bytes(room_bytes)]))

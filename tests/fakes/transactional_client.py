"""A transactional producer of either protocol, as clients are, over real connections.

It finds its coordinator and the leaders, asks again where brokers say so, and connects again when
it is disconnected. `lose_next_answer` lets the next request to the coordinator go unanswered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient

RETRIED: Final = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
    )
)
_PAUSE_S: Final = 0.02
_PATIENCE_S: Final = 20.0


class TransactionalClient:
    """One transactional id; `begin` first."""

    def __init__(
        self, cloud: FakeCloud, transactional_id: str = "tx", *, is_tv2: bool = False
    ) -> None:
        """`is_tv2`: batches add their partitions, and each transaction has an epoch."""
        self._is_tv2 = is_tv2
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.lose_next_answer = False
        self._cloud = cloud
        self._coordinator: WireClient | None = None
        self._leaders: dict[int, WireClient] = {}
        self._sequences: dict[tuple[str, int], int] = {}

    async def close(self) -> None:
        for client in (self._coordinator, *self._leaders.values()):
            if client is not None:
                await client.close()

    async def begin(self, timeout_ms: int = 60_000) -> None:
        """InitProducerId, as a new incarnation."""
        answer = await self.ask(
            ApiKey.INIT_PRODUCER_ID, 4, transaction_timeout=timeout_ms, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        assert answer.error_code == ErrorCode.none, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def add(self, topic: str, *partitions: int) -> set[ErrorCode]:
        """AddPartitionsToTxn; returns the codes that differ from those asked again on."""
        if self._is_tv2:
            return {ErrorCode.none}
        answer = await self.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
        )
        return _codes(answer)

    async def end(self, *, is_commit: bool) -> ErrorCode:
        """EndTxn."""
        answer = await self.ask(
            ApiKey.END_TXN, 5 if self._is_tv2 else 3, producer_id=self.producer_id,
            producer_epoch=self.epoch, committed=is_commit,
        )  # fmt: skip
        code: ErrorCode = answer.error_code
        if self._is_tv2 and code == ErrorCode.none:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return code

    async def write(self, topic: str, partition: int, value: str) -> ErrorCode:
        """Produce one record in the transaction."""
        sequence = self._sequences.get((topic, partition), 0)
        records = build_batch(
            [Record(b"k", value.encode(), self._cloud.clock.now_ms())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topics = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        fields = {"transactional_id": self.transactional_id, "acks": -1, "timeout": 5_000,
                  "topic_data": topics}  # fmt: skip
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                code = await self._produce(topic, partition, fields)
                if code not in RETRIED:
                    break
                await asyncio.sleep(_PAUSE_S)
        if code == ErrorCode.none:
            self._sequences[topic, partition] = sequence + 1
        return code

    async def _produce(self, topic: str, partition: int, fields: Mapping[str, Any]) -> ErrorCode:
        leader = next(
            (
                number
                for number, broker in self._cloud.brokers.items()
                if broker.partitions.find(topic, partition) is not None
            ),
            None,
        )
        if leader is None:
            return ErrorCode.not_leader_or_follower
        try:
            client = self._leaders.get(leader)
            if client is None:
                port = self._cloud.brokers[leader].port
                client = self._leaders[leader] = await WireClient.connect(port)
            answer = await client.call(ApiKey.PRODUCE, 12 if self._is_tv2 else 9, **fields)
        except (OSError, EOFError, TimeoutError):
            self._leaders.pop(leader, None)
            return ErrorCode.request_timed_out
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return code

    async def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask the coordinator until it says something final."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    client = await self._connected()
                    client.send(key, version, transactional_id=self.transactional_id, **fields)
                    if self.lose_next_answer:
                        self.lose_next_answer = False
                        await asyncio.sleep(0.2)
                        raise EOFError
                    answer = await client.receive()
                except (OSError, EOFError, TimeoutError):
                    self._coordinator = None
                    await asyncio.sleep(_PAUSE_S)
                    continue
                codes = _codes(answer)
                if not codes & RETRIED:
                    return answer
                if codes & {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}:
                    self._coordinator = None
                await asyncio.sleep(_PAUSE_S)

    async def _connected(self) -> WireClient:
        if self._coordinator is None:
            for broker in self._cloud.brokers.values():
                client = await WireClient.connect(broker.port)
                fields = {"key": self.transactional_id, "key_type": 1}
                client.send_raw(client.frame(ApiKey.FIND_COORDINATOR, 2, fields))
                found = await client.receive()
                await client.close()
                if found.error_code == ErrorCode.none:
                    self._coordinator = await WireClient.connect(found.port)
                    return self._coordinator
            raise EOFError
        return self._coordinator


def _codes(answer: Any) -> set[ErrorCode]:
    if hasattr(answer, "error_code"):
        return {answer.error_code}
    return {
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }

"""The transaction APIs of one broker, from request bytes to response bytes: `GroupBench` and more.

Markers go to a fake link, and partitions of `__transaction_state` are fakes too.
"""

from __future__ import annotations

from typing import Any

from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from broker.front.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
)
from broker.leadership.partitions import Partitions
from broker.topics.producer_ids import ProducerIds
from broker.transactions.config import TransactionSettings
from broker.transactions.core.transaction import (
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from broker.transactions.transactions import Transactions
from client.ids import ConnectionId, ProducerId
from client.metadata import paths
from tests.fakes.group_bench import GroupBench
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.transaction_bench import FakeLink
from tests.fakes.virtual_time import VirtualClock

ID = "tx"


class TransactionFront(GroupBench):
    """One broker's transaction services; `start` first."""

    def __init__(self, **config: Any) -> None:
        config.setdefault("transactions", TransactionSettings(enabled=True))
        super().__init__(**config)
        self.transaction_logs: dict[int, FakeLog] = {}
        self.transaction_partitions: dict[int, FakePartition] = {}
        self.connection = 1
        """Newest connection of the listener."""

    async def start(self) -> TransactionFront:
        """Register one broker, create topic `t` with 3 partitions, serve."""
        await super().start()
        self.link = FakeLink()
        producer_ids = ProducerIds(self.store)
        self.transactions = Transactions(
            self.cluster,
            self.topics,
            Partitions(self.cluster, self.awaited),
            producer_ids,
            self.config,
            self.link,
            VirtualClock(),
        )
        self.transactions.last_connection = lambda: ConnectionId(self.connection - 1)
        self.transactions.start()
        self.services.transactions = self.transactions
        self.services.producer_ids = producer_ids
        self.cluster.add_listener(self._lead)
        for index in range(3):
            await self.lead_data("t", index, 1)
        return self

    async def lead_data(self, topic: str, index: int, epoch: int) -> None:
        """Let a partition be led in an epoch."""
        path = paths.partition(self.cluster.topics[topic].id_text, index)
        data = b'{"version":1,"leader_epoch":%d,"log_start_offset":0,"segments":[]}' % epoch
        await self.store.set(path, data)

    async def serving(self) -> TransactionFront:
        """Create the internal topic and wait for all of its coordinators."""
        reply = await self.call(find_coordinator, 2, key=ID, key_type=1)
        assert reply.error_code.name == "none", reply
        await self.settle(
            lambda: (
                len(self.transactions.coordinators()) == self.config.transactions.topic_partitions
                and all(one.phase.value == "active" for one in self.transactions.coordinators())
            )
        )
        return self

    def take_over(self) -> None:
        """Lead all partitions of the internal topic anew."""
        for partition in self.transaction_partitions.values():
            partition.lose()
            self.transactions.on_closed(partition)  # type: ignore[arg-type]
        self.transaction_partitions.clear()
        self._lead()

    def _lead(self) -> None:
        topic = self.cluster.topics.get(TRANSACTIONS_TOPIC)
        for index in range(0 if topic is None else topic.partition_count):
            if index not in self.transaction_partitions:
                log = self.transaction_logs.setdefault(index, FakeLog(TRANSACTIONS_TOPIC, index))
                partition = self.transaction_partitions[index] = FakePartition(log)
                self.transactions.on_opened(partition)  # type: ignore[arg-type]

    # --- requests -----------------------------------------------------------------------------

    async def init(self, version: int = 5, **fields: Any) -> Any:
        """InitProducerId with sensible defaults."""
        request = {
            "transactional_id": ID,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            **fields,
        }
        return await self.call(init_producer_id, version, connection=self.connection, **request)

    async def began(self) -> ProducerIdAndEpoch:
        """InitProducerId that succeeds."""
        reply = await self.init()
        assert reply.error_code.name == "none", reply
        return ProducerIdAndEpoch(ProducerId(reply.producer_id), reply.producer_epoch)

    async def add(
        self,
        who: ProducerIdAndEpoch,
        topics: dict[str, list[int]] | None = None,
        version: int = 3,
    ) -> dict[tuple[str, int], str]:
        """AddPartitionsToTxn of a client; returns the name of each partition's code."""
        reply = await self.call(
            add_partitions_to_txn,
            version,
            connection=self.connection,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=_topics(topics),
        )
        return _codes(reply.results_by_topic_v3_and_below)

    async def ask(
        self,
        who: ProducerIdAndEpoch,
        topics: dict[str, list[int]] | None = None,
        version: int = 5,
        *,
        verify_only: bool = True,
    ) -> dict[tuple[str, int], str]:
        """AddPartitionsToTxn of a broker; returns the name of each partition's code."""
        transaction = {
            "transactional_id": ID,
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
            "verify_only": verify_only,
            "topics": _topics(topics),
        }
        reply = await self.call(add_partitions_to_txn, version, transactions=[transaction])
        (result,) = reply.results_by_transaction
        return _codes(result.topic_results)

    async def add_offsets(self, who: ProducerIdAndEpoch, version: int = 4) -> str:
        """AddOffsetsToTxn of group `g`; returns the name of the code."""
        reply = await self.call(
            add_offsets_to_txn, version, connection=self.connection, transactional_id=ID,
            producer_id=who.producer_id, producer_epoch=who.epoch, group_id="g",
        )  # fmt: skip
        return str(reply.error_code.name)

    async def end(
        self, who: ProducerIdAndEpoch, version: int = 4, *, committed: bool = True
    ) -> Any:
        """EndTxn."""
        return await self.call(
            end_txn, version, connection=self.connection, transactional_id=ID,
            producer_id=who.producer_id, producer_epoch=who.epoch, committed=committed,
        )  # fmt: skip

    def stored(self) -> TransactionMetadata:
        """The id's durable value."""
        found = self.transactions.coordinator(ID).view().describe(ID)
        assert found is not None
        return found


def _topics(topics: dict[str, list[int]] | None) -> list[dict[str, Any]]:
    found = {"t": [0]} if topics is None else topics
    return [{"name": name, "partitions": indexes} for name, indexes in found.items()]


def _codes(rows: Any) -> dict[tuple[str, int], str]:
    return {
        (row.name, one.partition_index): one.partition_error_code.name
        for row in rows
        for one in row.results_by_partition
    }

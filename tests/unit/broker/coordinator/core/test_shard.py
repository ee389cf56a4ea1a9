"""Every kind of coordinator can be served: what the runtime asks of a shard, both can do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import (
    Append,
    LogRecord,
    Now,
    Reply,
    Shard,
    Snapshot,
    Token,
)
from broker.errors import NotCoordinator
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import CommittedOffset, GroupConfig
from broker.groups.core.offset_records import offset_record
from broker.transactions.core.transaction import (
    InitProducerId,
    TransactionConfig,
    TransactionMetadata,
    TransactionState,
)
from broker.transactions.core.transaction_records import transaction_record
from broker.transactions.core.transaction_shard import TransactionShard
from client.ids import ConnectionId, ProducerId
from tests.fakes.group_topics import FakeTopics

NOW = Now(1000.0, 10**12)


def groups() -> GroupShard:
    return GroupShard(GroupConfig(), lambda prefix: f"{prefix}-1", FakeTopics())


def transactions() -> TransactionShard:
    return TransactionShard(TransactionConfig(), ConnectionOrder(ConnectionId(0)))


RECORDS: dict[Callable[[], Shard], LogRecord] = {
    groups: offset_record("a", "t", 0, CommittedOffset(5, -1, "", NOW.ms, -1)),
    transactions: transaction_record(
        "a",
        TransactionMetadata(ProducerId(3), 0, 1000, TransactionState.EMPTY, updated_ms=NOW.ms),
    ),
}

kinds = pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)


@kinds
def test_an_empty_shard(kind: Callable[[], Shard]) -> None:
    shard = kind()
    assert shard.next_deadline() is None
    assert list(shard.loaded(NOW)) == []
    assert shard.view.ids() == []
    deadline_s = shard.next_deadline()
    assert deadline_s is not None
    later = Now(deadline_s, NOW.ms + 1)
    assert list(shard.on_deadline(later)) == []
    assert list(shard.unload(NotCoordinator("lost"))) == []


@kinds
def test_a_snapshot_makes_the_same_shard(kind: Callable[[], Shard]) -> None:
    shard = kind()
    shard.replay(RECORDS[kind])
    shard.loaded(NOW)
    assert shard.view.ids() == ["a"]
    again = kind()
    for record in shard.view.snapshot("a").records:
        again.replay(record)
    assert again.view.ids() == ["a"]
    assert again.view.snapshot("a") == shard.view.snapshot("a") == Snapshot([RECORDS[kind]])


def test_a_reply_comes_after_its_append() -> None:
    shard = transactions()
    shard.replay(RECORDS[transactions])
    (append,) = shard.requests.init_producer_id(InitProducerId("a", 1000), Token(1), NOW)
    assert isinstance(append, Append)
    for record in append.records:
        shard.replay(record)
    (reply,) = shard.on_stored(append.ticket, NOW)
    assert isinstance(reply, Reply)
    assert reply.token == 1

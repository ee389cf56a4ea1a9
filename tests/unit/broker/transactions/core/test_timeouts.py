"""What runs out of time together is ended some at a time, so that nobody else has to wait."""

from __future__ import annotations

from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import Append, Now
from broker.transactions.core.transaction import (
    TIMED_OUT,
    ShardEffects,
    TransactionConfig,
    TransactionEvent,
    TransactionMetadata,
)
from broker.transactions.core.transaction_records import transaction_record
from broker.transactions.core.transaction_shard import TransactionShard
from client.ids import ConnectionId, ProducerId
from tests.unit.broker.transactions.core.transaction_driver import EMPTY, ONGOING, P0

_START = Now(1_000.0, 5_000_000)


def shard_with(*values: TransactionMetadata) -> TransactionShard:
    shard = TransactionShard(TransactionConfig(), ConnectionOrder(ConnectionId(0)))
    for number, value in enumerate(values):
        shard.replay(transaction_record(f"id-{number}", value))
    shard.loaded(_START)
    return shard


def after(shard: TransactionShard, now: Now) -> tuple[float, ShardEffects]:
    """Do what is due next; return how long that was after `now`, and the effects."""
    at_s = shard.next_deadline()
    assert at_s is not None
    wait_s = at_s - now.s
    return wait_s, shard.on_deadline(Now(at_s, now.ms + round(wait_s * 1000)))


def test_transactions_that_run_out_of_time_together_are_aborted_some_at_a_time() -> None:
    shard = shard_with(
        *(
            TransactionMetadata(
                ProducerId(number), 0, 1_000, ONGOING, (P0,), start_ms=_START.ms - 60_000
            )
            for number in range(120)
        )
    )
    wait_s, effects = after(shard, _START)
    assert wait_s == TransactionConfig().timeout_interval_ms / 1000
    aborted, now = [], Now(_START.s + wait_s, _START.ms + round(wait_s * 1000))
    counts = []
    while True:
        events = [one for one in effects if isinstance(one, TransactionEvent)]
        if not events:
            break
        assert {event.name for event in events} == {TIMED_OUT}
        assert sum(isinstance(one, Append) for one in effects) == len(events)
        aborted += [event.transactional_id for event in events]
        counts.append(len(events))
        wait_s, effects = after(shard, now)
        now = Now(now.s + wait_s, now.ms + round(wait_s * 1000))
        if len(aborted) < 120:
            assert 0 < wait_s < 1, "the next follow soon"
    assert counts == [50, 50, 20]
    assert sorted(aborted) == sorted(f"id-{number}" for number in range(120))


def test_shards_that_were_loaded_together_look_at_different_times() -> None:
    config = TransactionConfig()
    for phase in (0.0, 0.25, 0.98):
        shard = TransactionShard(config, ConnectionOrder(ConnectionId(0)), phase=phase)
        shard.loaded(_START)
        at_s = shard.next_deadline()
        assert at_s == _START.s + (1 + phase) * config.timeout_interval_ms / 1000
        shard.on_deadline(Now(at_s, _START.ms))
        next_s = shard.next_deadline()
        assert next_s is not None
        assert next_s - at_s == config.timeout_interval_ms / 1000


def test_ids_that_expire_together_are_forgotten_some_at_a_time() -> None:
    config = TransactionConfig()
    long_ago_ms = _START.ms - config.transactional_id_expiration_ms - 1
    shard = shard_with(
        *(
            TransactionMetadata(ProducerId(number), 0, 1_000, EMPTY, updated_ms=long_ago_ms)
            for number in range(2_100)
        )
    )
    now = Now(_START.s + config.expiry_interval_ms / 1000, _START.ms)
    counts = []
    for _ in range(3):
        batches = [one for one in shard.on_deadline(now) if isinstance(one, Append)]
        counts += [len(batch.records) for batch in batches]
        at_s = shard.next_deadline()
        assert at_s is not None
        if sum(counts) < 2_100:
            assert at_s - now.s < 1, "the next follow soon"
            now = Now(at_s, now.ms)
    assert counts == [1_000, 1_000, 100]

"""What the tables of a transaction's states start from: a stored value, claims, codes."""

from __future__ import annotations

from broker.coordinator.core.coordinator_types import Token
from broker.errors import BrokerError
from broker.faults import code_of
from broker.front.transaction_codes import for_version
from broker.transactions.core.transaction import (
    PREPARED,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
)
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey
from tests.unit.broker.transactions.core.transaction_driver import (
    EMPTY,
    ONGOING,
    P0,
    PID,
    PREVIOUS,
    TIMEOUT_MS,
    TV0,
    Bench,
    producer,
)

OK, INVALID_EPOCH, INVALID_STATE, NO_MAPPING, BUSY, FENCED = 0, 47, 48, 49, 51, 90
ELSEWHERE = 16
"""Of an epoch that is not given yet: another broker coordinates the id (AHEAD)."""
LAST = 32_766
"""The last epoch that clients get."""


def value(
    state: TransactionState,
    epoch: int = 5,
    *,
    version: TransactionVersion = TV0,
    last_epoch: int = -1,
    next_id: int = -1,
) -> TransactionMetadata:
    """A stored value; markers are under way to one partition if the state says so."""
    return TransactionMetadata(
        PID,
        epoch,
        TIMEOUT_MS,
        state,
        partitions=(P0,) if state in PREPARED or state is ONGOING else (),
        updated_ms=10**12,
        start_ms=-1 if state is EMPTY else 10**12 - 5,
        previous_producer_id=PREVIOUS,
        next_producer_id=ProducerId(next_id),
        version=version,
        last_epoch=last_epoch,
        number=3,
    )


def bench_with(stored: TransactionMetadata | None) -> Bench:
    bench = Bench()
    if stored is not None:
        bench.store(stored)
    bench.load()
    return bench


def code(bench: Bench, token: Token, api: ApiKey, version: int) -> int:
    result = bench.replies[token]
    if not isinstance(result, BrokerError):
        return OK
    return code_of(for_version(result, api, version, PID))


CLAIMS = {
    "current": producer(PID, 5),
    "older": producer(PID, 4),
    "newer": producer(PID, 6),
    "another id": producer(55, 5),
    "previous id": producer(PREVIOUS, LAST),
}

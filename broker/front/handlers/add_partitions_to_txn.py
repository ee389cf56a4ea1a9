"""AddPartitionsToTxn (24), versions 0-5: partitions become part of a transaction.

Behaviour: `broker/transactions/core/transaction.py`. Durable before the answer. One partition that
does not exist keeps all others out, which are told OPERATION_NOT_ATTEMPTED. A request that comes
while the markers of the last transaction are written waits for them, for a moment.

Versions: 0-3 come from clients and are about one transaction; 2+ know PRODUCER_FENCED. 4+ come from
brokers and are about several, each with an outcome of its own; `verify_only` asks whether the
partitions are in the transaction and adds none. 5+ know TRANSACTION_ABORTABLE.

Deviations from Kafka: a request that finds the last transaction ending is answered when the next
one can begin, instead of CONCURRENT_TRANSACTIONS at once; that comes after five seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.errors import InvalidRequest, UnknownTopicOrPartition
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.front.transaction_codes import client_of, transaction_code
from broker.security.rights import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.transactions.core.transaction import (
    AddPartitions,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from client.errors import QuireError
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS: Final = (0, 5)
NEEDS: Final = (CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)

_BATCHED_FROM: Final = 4

_Codes = Mapping[tuple[str, int], int]


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each partition."""
    if call.version < _BATCHED_FROM:
        asked = AddPartitions(
            request.v3_and_below_transactional_id,
            _producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            (),
            TransactionVersion.TV0,
            call.connection,
            client_of(call),
        )
        codes = await _add(services, call, asked, request.v3_and_below_topics)
        return {"throttle_time": 0, "results_by_topic_v3_and_below": _rows(codes)}
    services.rights.require(call.peer, CLUSTER_ACTION)
    pace = services.turns.pace()
    results = []
    for one in request.transactions:
        await pace.item()
        producer = _producer(one.producer_id, one.producer_epoch)
        if one.verify_only:
            codes = await _verify(services, call, one.transactional_id, producer, one.topics)
        else:
            added = AddPartitions(one.transactional_id, producer, (), TransactionVersion.TV2)
            codes = await _add(services, call, added, one.topics)
        results.append({"transactional_id": one.transactional_id, "topic_results": _rows(codes)})
    return {"throttle_time": 0, "error_code": Code.none, "results_by_transaction": results}


async def _add(
    services: Services, call: Call, request: AddPartitions, topics: Sequence[Any]
) -> _Codes:
    """Add all partitions that `topics` names, or none."""
    codes: dict[tuple[str, int], int] = {}
    try:
        if request.connection is not None:
            services.rights.require(call.peer, WRITE_TRANSACTIONAL_ID, request.transactional_id)
            codes = _forbidden(services, call, topics)
            if codes:
                others = dict.fromkeys(_keys(topics), int(Code.operation_not_attempted))
                return others | codes
        coordinator = services.transactions.coordinator(request.transactional_id)
        found, codes = await _find(services, topics)
        if request.connection is not None:
            codes |= _internal(services, found)
        if any(codes.values()):
            return {key: code or int(Code.operation_not_attempted) for key, code in codes.items()}
        if not found:
            raise InvalidRequest("no partition is named")
        await coordinator.add_partitions(request._replace(partitions=found))
    except QuireError as error:
        code = transaction_code(error, call, request.producer.producer_id)
        return dict.fromkeys(_keys(topics), code)
    return codes


async def _verify(
    services: Services,
    call: Call,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Sequence[Any],
) -> _Codes:
    """Say which partitions the transaction has."""
    try:
        coordinator = services.transactions.coordinator(transactional_id)
        found, codes = await _find(services, topics)
        outcomes = await coordinator.verify(transactional_id, producer, found)
    except QuireError as error:
        code = transaction_code(error, call, producer.producer_id)
        return dict.fromkeys(_keys(topics), code)
    for partition, outcome in zip(found, outcomes, strict=True):
        if outcome is not None:
            key = partition.topic, partition.partition
            codes[key] = transaction_code(outcome, call, producer.producer_id)
    return codes


async def _find(
    services: Services, topics: Sequence[Any]
) -> tuple[tuple[TransactionPartition, ...], dict[tuple[str, int], int]]:
    """Return the partitions that exist, and a code for each that is named."""
    found = []
    codes: dict[tuple[str, int], int] = {}
    pace = services.turns.pace()
    for topic, index in _keys(topics):
        await pace.item()
        try:
            found.append(await services.transactions.partition(topic, index))
            codes[topic, index] = int(Code.none)
        except UnknownTopicOrPartition as error:
            codes[topic, index] = code_of(error)
    return tuple(found), codes


def _internal(
    services: Services, partitions: Sequence[TransactionPartition]
) -> dict[tuple[str, int], int]:
    """Refuse what belongs to the brokers, which they add themselves."""
    topics = services.cluster.topics
    return {
        (one.topic, one.partition): int(Code.topic_authorization_failed)
        for one in partitions
        if one.topic in topics and topics[one.topic].internal
    }


def _forbidden(services: Services, call: Call, topics: Sequence[Any]) -> dict[tuple[str, int], int]:
    """Refuse what the client may not write to, whether it is there or not."""
    if not services.rights.is_on:
        return {}
    codes = {key: services.rights.code(call.peer, WRITE_TOPIC, key[0]) for key in _keys(topics)}
    return {key: code for key, code in codes.items() if code}


def _keys(topics: Sequence[Any]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((one.name, index) for one in topics for index in one.partitions))


def _rows(codes: _Codes) -> list[dict[str, Any]]:
    rows: dict[str, list[dict[str, int]]] = {}
    for (topic, index), code in codes.items():
        rows.setdefault(topic, []).append({"partition_index": index, "partition_error_code": code})
    return [{"name": topic, "results_by_partition": row} for topic, row in rows.items()]


def _producer(producer_id: int, epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(ProducerId(producer_id), epoch)

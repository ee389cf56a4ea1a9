"""Requests in order about transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.request import (
    WRITTEN,
    WRITTEN_PARTITIONS,
    Base,
    producer,
    same,
)
from tests.integration.differential.plain_wire import Tree

K = ApiKey


def _txn(name: str, fields: Callable[[int, int], Mapping[str, Any]], *prepare: str) -> Base:
    return Base(name, lambda n, v: {
        "transactional_id": f"x-{n}", **producer(n), **fields(n, v)}, prepare)  # fmt: skip


def add_fields(number: int, _version: int = 0) -> Tree:
    """Return an AddPartitionsToTxn request, in both of its shapes."""
    rows = [{"name": WRITTEN, "partitions": [number % WRITTEN_PARTITIONS]}]
    who: Tree = {"transactional_id": f"x-{number}", **producer(number), "topics": rows}
    return {
        **{f"v3_and_below_{name}": value for name, value in who.items()},
        "transactions": [{**who, "verify_only": False}],
    }


def init_fields(number: int, _version: int) -> Tree:
    """Return an InitProducerId request of an id of the number's own."""
    return {"transactional_id": f"x-{number}", "transaction_timeout": 900_000,
            "producer_id": -1, "producer_epoch": -1}  # fmt: skip


_OFFSET = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1,
           "committed_metadata": "m"}  # fmt: skip
TRANSACTIONS: Mapping[ApiKey, Sequence[Base]] = {
    K.INIT_PRODUCER_ID: (
        Base("the first time", init_fields),
        Base("again", lambda n, v: {**init_fields(n, v), **producer(n)}, ("producer",)),
        Base("no transactions", lambda n, v: {**init_fields(n, v), "transactional_id": None}),
    ),
    K.ADD_PARTITIONS_TO_TXN: (Base("a partition", add_fields, ("producer",)),),
    K.ADD_OFFSETS_TO_TXN: (_txn("a group", lambda n, _v: {"group_id": f"g-{n}"}, "producer"),),
    K.END_TXN: (_txn("commit", lambda _n, _v: {"committed": True}, "transaction"),
                _txn("of nothing", lambda _n, _v: {"committed": False}, "producer")),
    K.TXN_OFFSET_COMMIT: (
        _txn("an offset", lambda n, _v: {
            "group_id": f"g-{n}", "topics": [{"name": "t", "partitions": [_OFFSET]}]},
            "producer", "offsets in it"),
    ),
    K.WRITE_TXN_MARKERS: (
        Base("a marker", lambda n, _v: {"markers": [{
            **producer(n), "transaction_result": True, "coordinator_epoch": 0,
            "topics": [{"name": WRITTEN, "partition_indexes": [n % WRITTEN_PARTITIONS]}]}]},
            ("producer",)),
    ),
    K.DESCRIBE_TRANSACTIONS: (same("two", transactional_ids=["tx", "nothing"]),),
    K.LIST_TRANSACTIONS: (
        same("all", state_filters=[], producer_id_filters=[], duration_filter=-1),
        same("some", state_filters=["Empty"], producer_id_filters=[-1], duration_filter=-1,
              transactional_id_pattern="t.*"),
    ),
}  # fmt: skip

"""A decision survives its way through an offset's metadata, and fits."""

from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.spark.errors import SparkSourceError
from client.spark.write.exactly_once.decision import (
    METADATA_BYTES_MAX,
    Decision,
    TaskTransaction,
    TooManyTransactions,
    decode,
    encode,
)

QUERY = "5fcd80d5-3e4f-4a2a-8a2a-2d9a7a0a6c11"
ROWS = st.builds(
    TaskTransaction,
    st.integers(0, 1 << 31),
    st.integers(0, 31),
    st.integers(0, 1 << 62),
    st.integers(0, 32_767),
)


@given(st.integers(0, 1 << 40), st.lists(ROWS, max_size=20, unique=True))
def test_what_is_encoded_is_decoded(batch_id: int, rows: list[TaskTransaction]) -> None:
    decision = Decision(QUERY, batch_id, tuple(sorted(rows)))
    assert decode(batch_id, encode(decision)) == decision


def transactions(count: int) -> tuple[TaskTransaction, ...]:
    """Return what a busy cluster gives: ids in blocks, epochs that lie apart."""
    return tuple(
        TaskTransaction(task, task * 7 % 32, 40_000 + task * 37 % 977, 100 + task * 13 % 29)
        for task in range(count)
    )


def test_a_thousand_tasks_fit() -> None:
    assert len(encode(Decision(QUERY, 1 << 30, transactions(1000)))) <= METADATA_BYTES_MAX


def test_more_than_fit_are_refused() -> None:
    with pytest.raises(TooManyTransactions, match=r"10000 tasks.*coalesce"):
        rng = random.Random(1)
        rows = [one._replace(producer_id=rng.getrandbits(40)) for one in transactions(10_000)]
        encode(Decision(QUERY, 3, tuple(rows)))


def packed(text: bytes) -> str:
    return "1|q|" + base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "mine",
        "2" + packed(b"[[],[],[],[]]")[1:],
        "1|q|?",
        "1|q|AAAA",
        packed(b"[[],[],[],[]]")[:-8],
        packed(b"[[],[],[]]"),
        packed(b"[[1],[],[],[]]"),
        packed(b"[[1.5],[1],[1],[1]]"),
        packed(b'{"a":1}'),
        packed(b"7"),
        packed(b"[" * 100_000),
        packed(b" " * (2 << 20)),
    ],
)
def test_what_somebody_else_committed_is_named(metadata: str) -> None:
    with pytest.raises(SparkSourceError, match="not a decision of this sink"):
        decode(7, metadata)

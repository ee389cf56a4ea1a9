"""Buckets are bounded, whatever clients call themselves."""

from __future__ import annotations

from broker.security.core.quota_limits import Limit, QuotaKey, QuotaTable
from client.ids import ConnectionId

KEY = QuotaKey.PRODUCER_BYTE_RATE
WHO = ConnectionId(1)


def limit(name: str, rate: float = 10.0) -> Limit:
    return Limit(rate, (None, name))


def test_an_owner_has_one_bucket() -> None:
    table = QuotaTable(10, 1.0)
    one = table.bucket(KEY, limit("a"), 0.0)
    assert table.bucket(KEY, limit("a"), 1.0) is one
    assert table.bucket(KEY, limit("b"), 1.0) is not one
    assert table.bucket(QuotaKey.CONSUMER_BYTE_RATE, limit("a"), 1.0) is not one
    assert table.bucket(KEY, limit("a", 20.0), 1.0).rate == 20.0
    assert len(table) == 3


def test_names_beyond_the_limit_share_one() -> None:
    table = QuotaTable(5, 1.0)
    for number in range(5):
        table.bucket(KEY, limit(str(number)), 0.0).use(WHO, 1_000, 0.0)
    shared = {id(table.bucket(KEY, limit(f"more-{n}"), 0.0)) for n in range(1_000)}
    assert len(shared) == 1
    assert len(table) == 6
    assert table.bucket(KEY, limit("more", 99.0), 0.0).rate == 99.0


def test_full_ones_make_room() -> None:
    table = QuotaTable(5, 1.0)
    for number in range(5):
        table.bucket(KEY, limit(str(number)), 0.0)
    one = table.bucket(KEY, limit("new"), 10.0)
    assert len(table) == 1
    assert table.bucket(KEY, limit("new"), 10.0) is one

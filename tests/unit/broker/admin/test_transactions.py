"""/transactions: lists, descriptions and an operator's abort."""

from __future__ import annotations

from typing import Any

from broker.errors import BrokerError, ProducerFenced
from broker.transactions.config import TransactionSettings
from broker.transactions.core.transaction import (
    AddPartitions,
    Client,
    EndTransaction,
    InitProducerId,
    ProducerIdAndEpoch,
    TransactionVersion,
)
from tests.fakes.admin import AdminCloud, until

SETTINGS = TransactionSettings(enabled=True, topic_partitions=3)
ALICE = Client("alice", "10.0.0.7")


def cloud_of(count: int) -> AdminCloud:
    return AdminCloud(count, transactions=SETTINGS)


async def coordinator(cloud: AdminCloud, name: str) -> Any:
    """Return the coordinator of an id once it serves."""
    await cloud.brokers[1].transactions.find(name)

    def find() -> Any:
        for broker in cloud.brokers.values():
            try:
                found = broker.transactions.coordinator(name)
                found.view()
            except BrokerError:
                continue
            return found
        return None

    await until(lambda: find() is not None)
    return find()


async def began(cloud: AdminCloud, name: str) -> ProducerIdAndEpoch:
    """Make an id known."""
    found = await coordinator(cloud, name)
    who: ProducerIdAndEpoch = await found.init_producer_id(
        InitProducerId(name, 60_000, client=ALICE)
    )
    return who


async def opened(cloud: AdminCloud, name: str, *partitions: int) -> ProducerIdAndEpoch:
    """Open a transaction in topic t."""
    who = await began(cloud, name)
    found = [await cloud.brokers[1].transactions.partition("t", index) for index in partitions]
    await (await coordinator(cloud, name)).add_partitions(AddPartitions(name, who, tuple(found)))
    return who


async def test_ids_of_all_brokers_with_their_clients() -> None:
    async with cloud_of(2) as cloud:
        await cloud.send("PUT", "/topics/t", {"partition_count": 3}, status=201)
        names = [f"id-{number}" for number in range(6)]
        for name in names:
            await began(cloud, name)
        who = await opened(cloud, "open", 0, 2)
        for at in (1, 2):
            listed = await cloud.get("/transactions", at=at)
            assert [row["transactional_id"] for row in listed["items"]] == [*names, "open"]
            assert listed["silent"] == []
            one = listed["items"][-1]
            assert (one["state"], one["partition_count"], one["number"]) == ("Ongoing", 2, 1)
            assert (one["producer_id"], one["producer_epoch"]) == who
            assert (one["client_id"], one["client_host"]) == ALICE
            about = await cloud.get("/transactions/open", at=at)
            assert about["partitions"] == [
                {"topic": "t", "partition": 0},
                {"topic": "t", "partition": 2},
            ]
        assert len({row["coordinator"] for row in listed["items"]}) == 2


async def test_filters_and_pages() -> None:
    async with cloud_of(1) as cloud:
        await cloud.send("PUT", "/topics/t", {"partition_count": 1}, status=201)
        await began(cloud, "a")
        await opened(cloud, "b", 0)
        await began(cloud, "c")
        listed = await cloud.get("/transactions?state=Ongoing")
        assert [row["transactional_id"] for row in listed["items"]] == ["b"]
        assert (await cloud.get("/transactions?open_seconds=3600"))["items"] == []
        first = await cloud.get("/transactions?limit=2")
        assert [row["transactional_id"] for row in first["items"]] == ["a", "b"]
        last = await cloud.get(f"/transactions?after={first['next']}")
        assert [row["transactional_id"] for row in last["items"]] == ["c"]


async def test_an_operators_abort_fences_the_producer() -> None:
    async with cloud_of(2) as cloud:
        await cloud.send("PUT", "/topics/t", {"partition_count": 1}, status=201)
        who = await opened(cloud, "hangs", 0)
        done = await cloud.send("POST", "/transactions/hangs/abort", at=2)
        assert done["state"] == "PrepareAbort"
        assert done["producer_epoch"] == who.epoch + 1
        found = await coordinator(cloud, "hangs")
        request = EndTransaction("hangs", who, True, TransactionVersion.TV0)
        try:
            await found.end_transaction(request)
        except ProducerFenced:
            pass
        else:
            raise AssertionError("its producer is not fenced")
        again = await cloud.send("POST", "/transactions/hangs/abort", status=409)
        assert again["type"].endswith("transaction-refused")


async def test_what_is_not_there() -> None:
    async with cloud_of(1) as cloud:
        assert (await cloud.get("/transactions"))["items"] == []
        problem = await cloud.get("/transactions/nobody", status=404)
        assert problem["type"].endswith("unknown-transaction")
        await began(cloud, "a")
        await cloud.get("/transactions/nobody", status=404)
        await cloud.send("POST", "/transactions/nobody/abort", status=404)

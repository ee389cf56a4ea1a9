"""The APIs of transactional producers: fields and error codes of every version."""

from __future__ import annotations

import pytest

from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.errors import OldConnection
from broker.front.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from broker.transactions.config import TransactionSettings
from broker.transactions.core.transaction import ProducerIdAndEpoch, TransactionState
from client.ids import BrokerId, ProducerId
from tests.fakes.partitions import FakeLog
from tests.fakes.transaction_front import ID, TransactionFront
from tests.fakes.virtual_time import run

FENCED_FROM = {add_partitions_to_txn: 2, add_offsets_to_txn: 2, end_txn: 2}


def older(who: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(who.producer_id, who.epoch - 1)


class TestFindCoordinator:
    @pytest.mark.parametrize("version", range(1, 7))
    def test_names_the_leader_of_the_partition(self, version: int) -> None:
        async def scenario() -> None:
            front = await TransactionFront().start()
            if version < 4:
                found = await front.call(find_coordinator, version, key=ID, key_type=1)
            else:
                reply = await front.call(
                    find_coordinator, version, coordinator_keys=[ID], key_type=1
                )
                (found,) = reply.coordinators
            assert found.error_code.name == "none"
            assert found.node_id == 1
            topic = front.cluster.topics[TRANSACTIONS_TOPIC]
            assert (topic.partition_count, topic.internal) == (16, True)
            assert OFFSETS_TOPIC not in front.cluster.topics

        run(scenario())


class TestSwitchedOff:
    """Each answer is one that clients end with."""

    def test_every_api_says_so(self) -> None:
        async def scenario() -> None:
            front = await TransactionFront(transactions=TransactionSettings(enabled=False)).start()
            said = "transactional_id_authorization_failed"
            who = ProducerIdAndEpoch(ProducerId(1), 0)
            reply = await front.call(find_coordinator, 2, key=ID, key_type=1)
            assert (reply.error_code.name, reply.error_message) == (
                said,
                "transactions.enabled is off",
            )
            assert (await front.init()).error_code.name == said
            assert set((await front.add(who)).values()) == {said}
            assert await front.add_offsets(who) == said
            assert (await front.end(who)).error_code.name == said
            assert TRANSACTIONS_TOPIC not in front.cluster.topics

        run(scenario())

    def test_idempotent_producers_do_not_notice(self) -> None:
        async def scenario() -> None:
            front = await TransactionFront(transactions=TransactionSettings(enabled=False)).start()
            reply = await front.init(transactional_id=None)
            assert (reply.error_code.name, reply.producer_epoch) == ("none", 0)

        run(scenario())


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    def test_a_new_id(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            reply = await front.init(version)
            assert (reply.error_code.name, reply.producer_epoch) == ("none", 0)
            assert front.stored().state is TransactionState.EMPTY
            again = await front.init(version)
            assert (again.producer_id, again.producer_epoch) == (reply.producer_id, 1)

        run(scenario())

    @pytest.mark.parametrize("version", range(3, 6))
    def test_who_has_been_replaced_is_told_in_its_versions_word(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            await front.began()
            await front.began()
            reply = await front.init(version, producer_id=who.producer_id, producer_epoch=who.epoch)
            word = "producer_fenced" if version >= 4 else "invalid_producer_epoch"
            assert reply.error_code.name == word
            assert (reply.producer_id, reply.producer_epoch) == (-1, -1)

        run(scenario())

    def test_an_open_transaction_is_aborted_first(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            await front.add(await front.began())
            assert (await front.init()).error_code.name == "concurrent_transactions"
            await front.settle(lambda: front.stored().state is TransactionState.COMPLETE_ABORT)
            assert (await front.init()).producer_epoch == 2

        run(scenario())

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"transactional_id": ""}, "invalid_request"),
            ({"transaction_timeout": 0}, "invalid_transaction_timeout"),
            ({"transaction_timeout": 900_001}, "invalid_transaction_timeout"),
            ({"producer_id": 5}, "invalid_request"),
            ({"producer_epoch": 5}, "invalid_request"),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, object], code: str) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            assert (await front.init(**fields)).error_code.name == code

        run(scenario())

    def test_another_brokers_id(self) -> None:
        async def scenario() -> None:
            front = await TransactionFront().start()
            assert (await front.init()).error_code.name == "not_coordinator"

        run(scenario())


class TestAddPartitions:
    @pytest.mark.parametrize("version", range(4))
    def test_begins_a_transaction(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            assert await front.add(who, {"t": [0, 2]}, version) == {
                ("t", 0): "none",
                ("t", 2): "none",
            }
            stored = front.stored()
            assert stored.state is TransactionState.ONGOING
            topic_id = front.cluster.topics["t"].topic_id
            assert [tuple(one) for one in stored.partitions] == [
                ("t", topic_id, 0),
                ("t", topic_id, 2),
            ]

        run(scenario())

    def test_one_that_is_not_there_keeps_the_others_out(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            assert await front.add(who, {"t": [0, 3], "u": [0]}) == {
                ("t", 0): "operation_not_attempted",
                ("t", 3): "unknown_topic_or_partition",
                ("u", 0): "unknown_topic_or_partition",
            }
            assert front.stored().state is TransactionState.EMPTY

        run(scenario())

    def test_topics_of_the_brokers_are_not_for_clients(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            assert await front.add(who, {TRANSACTIONS_TOPIC: [0]}) == {
                (TRANSACTIONS_TOPIC, 0): "topic_authorization_failed"
            }

        run(scenario())

    @pytest.mark.parametrize("version", range(4))
    def test_epochs(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            await front.began()
            who = await front.began()
            word = "producer_fenced" if version >= 2 else "invalid_producer_epoch"
            assert await front.add(older(who), version=version) == {("t", 0): word}
            other = ProducerIdAndEpoch(ProducerId(77), 0)
            assert await front.add(other, version=version) == {
                ("t", 0): "invalid_producer_id_mapping"
            }

        run(scenario())

    @pytest.mark.parametrize("version", [4, 5])
    def test_brokers_verify(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            word = "transaction_abortable" if version >= 5 else "invalid_txn_state"
            assert await front.ask(who, version=version) == {("t", 0): word}
            await front.add(who)
            assert await front.ask(who, {"t": [0, 1], "u": [0]}, version) == {
                ("t", 0): "none",
                ("t", 1): word,
                ("u", 0): "unknown_topic_or_partition",
            }
            assert await front.ask(older(who), version=version) == {("t", 0): "producer_fenced"}

        run(scenario())

    def test_brokers_add(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            assert await front.ask(who, verify_only=False) == {("t", 0): "none"}
            assert front.stored().version == 2
            assert await front.ask(who) == {("t", 0): "none"}

        run(scenario())


class TestAddOffsets:
    @pytest.mark.parametrize("version", range(5))
    def test_adds_the_groups_partition(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            await front.began()
            who = await front.began()
            word = "producer_fenced" if version >= 2 else "invalid_producer_epoch"
            assert await front.add_offsets(older(who), version) == word
            assert await front.add_offsets(who, version) == "none"
            ((topic, topic_id, index),) = front.stored().partitions
            found, expected = await front.groups.place("g")
            assert (topic, topic_id, index) == (OFFSETS_TOPIC, found.topic_id, expected)

        run(scenario())


class TestEndTxn:
    @pytest.mark.parametrize("committed", [True, False])
    @pytest.mark.parametrize("version", range(6))
    def test_ends_it(self, version: int, committed: bool) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            if version < 5:
                await front.add(who)
            else:
                await front.ask(who, verify_only=False)
            reply = await front.end(who, version, committed=committed)
            assert reply.error_code.name == "none"
            if version >= 5:
                assert (reply.producer_id, reply.producer_epoch) == (who.producer_id, 1)
            after = (
                TransactionState.COMPLETE_COMMIT if committed else (TransactionState.COMPLETE_ABORT)
            )
            await front.settle(lambda: front.stored().state is after)
            again = await front.end(who, version, committed=committed)
            assert again.error_code.name == "none"
            other = await front.end(who, version, committed=not committed)
            assert other.error_code.name == "invalid_txn_state"

        run(scenario())

    @pytest.mark.parametrize("version", range(6))
    def test_epochs(self, version: int) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            for _ in range(3):
                who = await front.began()
            await front.add(who)
            word = "producer_fenced" if version >= 2 else "invalid_producer_epoch"
            old = ProducerIdAndEpoch(who.producer_id, 0)
            assert (await front.end(old, version)).error_code.name == word

        run(scenario())


class TestConnections:
    def test_an_old_one_is_closed_without_an_answer(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            front.connection = 3
            who = await front.began()
            await front.add(who)
            front.connection = 2
            with pytest.raises(OldConnection):
                await front.end(who)
            with pytest.raises(OldConnection):
                await front.add(who)
            with pytest.raises(OldConnection):
                await front.add_offsets(who)
            with pytest.raises(OldConnection):
                await front.init()
            front.connection = 3
            assert (await front.end(who)).error_code.name == "none"

        run(scenario())

    def test_so_are_those_from_before_the_takeover(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            front.connection = 5
            front.take_over()  # 4 was accepted before
            await front.serving()
            front.connection = 4
            with pytest.raises(OldConnection):
                await front.add(who)
            front.connection = 5
            assert await front.add(who) == {("t", 0): "none"}

        run(scenario())

    def test_the_very_first_coordinator_takes_any(self) -> None:
        async def scenario() -> None:
            front = TransactionFront()
            for index in range(16):
                front.transaction_logs[index] = FakeLog(TRANSACTIONS_TOPIC, index)
                front.transaction_logs[index].epoch = -1
            await front.start()
            front.connection = 7
            await front.serving()  # 6 was accepted before
            front.connection = 6
            assert (await front.init()).error_code.name == "none"

        run(scenario())


class TestDescribe:
    def test_what_an_id_is_doing(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            await front.add(who, {"t": [0, 2]})
            reply = await front.call(describe_transactions, 0, transactional_ids=[ID, "no", ""])
            one, unknown, empty = reply.transaction_states
            assert one.error_code.name == "none"
            assert one.transaction_state == "Ongoing"
            assert (one.producer_id, one.producer_epoch) == who
            assert [(row.topic, row.partitions) for row in one.topics] == [("t", (0, 2))]
            assert unknown.error_code.name == "transactional_id_not_found"
            assert empty.error_code.name == "invalid_request"

        run(scenario())

    def test_markers_under_way_are_what_is_left(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            await front.add(who)
            front.link.holds.add(BrokerId(1))
            await front.end(who)
            reply = await front.call(describe_transactions, 0, transactional_ids=[ID])
            (one,) = reply.transaction_states
            assert one.transaction_state == "PrepareCommit"

        run(scenario())


class TestList:
    async def _ids(self, front: TransactionFront, version: int = 1, **fields: object) -> set[str]:
        request = {
            "state_filters": [], "producer_id_filters": [], "duration_filter": -1, **fields,
        }  # fmt: skip
        reply = await front.call(list_transactions, version, **request)
        assert reply.error_code.name == "none"
        return {one.transactional_id for one in reply.transaction_states}

    def test_filters(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            who = await front.began()
            await front.add(who)
            await front.init(transactional_id="other")
            assert await self._ids(front, 0) == {ID, "other"}
            assert await self._ids(front, state_filters=["Ongoing"]) == {ID}
            assert await self._ids(front, state_filters=["Empty", "Ongoing"]) == {ID, "other"}
            assert await self._ids(front, state_filters=["Nonsense"]) == set()
            assert await self._ids(front, producer_id_filters=[who.producer_id]) == {ID}
            assert await self._ids(front, duration_filter=60_000) == {"other"}
            await front.settle_for(10)
            assert await self._ids(front, duration_filter=5_000) == {ID, "other"}

        run(scenario())

    def test_by_a_regular_expression(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            await front.began()
            await front.init(transactional_id="other")
            for pattern, ids in (
                ("o.*", {"other"}), ("o", set()), ("", {ID, "other"}), (None, {ID, "other"})
            ):  # fmt: skip
                found = await self._ids(front, 2, transactional_id_pattern=pattern)
                assert found == ids, pattern
            reply = await front.call(
                list_transactions, 2, state_filters=["Nonsense"], producer_id_filters=[],
                transactional_id_pattern="(",
            )  # fmt: skip
            assert reply.error_code.name == "invalid_regular_expression"
            assert reply.transaction_states == ()

        run(scenario())

    def test_states_that_nobody_knows(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            reply = await front.call(
                list_transactions, 0, state_filters=["Nonsense", "Empty"], producer_id_filters=[]
            )
            assert reply.unknown_state_filters == ("Nonsense",)

        run(scenario())

    def test_nothing_while_something_loads(self) -> None:
        async def scenario() -> None:
            front = await (await TransactionFront().start()).serving()
            await front.began()
            front.take_over()
            reply = await front.call(list_transactions, 0, state_filters=[], producer_id_filters=[])
            assert reply.error_code.name == "coordinator_load_in_progress"
            assert reply.transaction_states == ()

        run(scenario())


def test_no_two_handlers_share_a_key() -> None:
    modules = (
        add_offsets_to_txn, add_partitions_to_txn, describe_transactions, end_txn,
        init_producer_id, list_transactions,
    )  # fmt: skip
    assert sorted(module.KEY for module in modules) == [22, 24, 25, 26, 65, 66]

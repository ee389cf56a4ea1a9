"""What is asked about transactions: whole lives of transactional ids, in all versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import HEADER_BYTES, pack_batch, parse_header
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import always, batch

INIT, ADD, ADD_OFFSETS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
)
END, COMMIT_OFFSETS = ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT

LIVES: Sequence[tuple[int, int, int, int, int]] = (
    # of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
    (0, 0, 0, 0, 0),
    (1, 1, 1, 1, 1),
    (2, 2, 2, 2, 2),
    (3, 3, 3, 3, 3),
    (4, 3, 4, 4, 4),
    (5, 3, 4, 4, 4),
)
_EPOCH_EACH = 5
_ADDS_BY_ITSELF = 12
_BY_ID = 13
"""Produce and Fetch name the topic by its id from this version on."""
TOPIC = "t"

Who = Callable[[Seen], tuple[int, int]]


def _is_settled(answer: Any) -> bool:
    busy = ("concurrent_transactions", "coordinator_load_in_progress", "not_coordinator",
            "coordinator_not_available", "unstable_offset_commit")  # fmt: skip
    return not any(name in str(answer) for name in busy)


TRANSACTIONAL = 0x10


def transactional(**fields: Any) -> bytes:
    """Return a batch of one record, with these fields of its header."""
    whole = batch(b"v")
    header = parse_header(whole)._replace(**fields)
    return pack_batch(header, whole[HEADER_BYTES:])


class Life:
    """One transactional id, and the versions it is asked in."""

    def __init__(
        self, number: int, versions: tuple[int, int, int, int, int], *, by_id: bool = False
    ) -> None:
        self.name = f"life {number}"
        self._by_id = by_id
        self.partition = number % 3
        self.init_in, self.add_in, self.offsets_in, self.end_in, self.commit_in = versions

    # --- who ---------------------------------------------------------------------------------

    def now(self, seen: Seen) -> tuple[int, int]:
        known: tuple[int, int] = seen.values[self.name]
        return known

    def before(self, seen: Seen) -> tuple[int, int]:
        producer_id, epoch = self.now(seen)
        return producer_id, epoch - 1

    def somebody(self, seen: Seen) -> tuple[int, int]:
        producer_id, epoch = self.now(seen)
        return producer_id + 1_000_000, epoch

    # --- steps -------------------------------------------------------------------------------

    def init(self, what: str, expected: Who | None = None, **more: Any) -> Step:
        def fields(seen: Seen, _version: int) -> Fields:
            producer_id, epoch = (-1, -1) if expected is None else expected(seen)
            return {
                "transactional_id": self.name, "transaction_timeout": more.get("timeout", 60_000),
                "producer_id": producer_id, "producer_epoch": epoch,
            }  # fmt: skip

        def note(seen: Seen, answer: Any) -> None:
            if answer.error_code.name == "none":
                seen.values[self.name] = answer.producer_id, answer.producer_epoch
                seen.values[self._sequence] = 0

        return Step(f"{self.name}: {what}", INIT, fields, (self.init_in,), note, _is_settled)

    def add(self, what: str, who: Who | None = None, *topics: tuple[str, int]) -> Step:
        def fields(seen: Seen, version: int) -> Fields:
            producer_id, epoch = (who or self.now)(seen)
            rows = [
                {"name": name, "partitions": [index]}
                for name, index in topics or ((TOPIC, self.partition),)
            ]
            return {
                "v3_and_below_transactional_id": self.name,
                "v3_and_below_producer_id": producer_id, "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": rows, "transactional_id": self.name,
                "producer_id": producer_id, "producer_epoch": epoch, "topics": rows,
            }  # fmt: skip

        return Step(f"{self.name}: {what}", ADD, fields, (self.add_in,), None, _is_settled)

    def add_offsets(self, what: str, who: Who | None = None) -> Step:
        def fields(seen: Seen, _version: int) -> Fields:
            producer_id, epoch = (who or self.now)(seen)
            return {"transactional_id": self.name, "producer_id": producer_id,
                    "producer_epoch": epoch, "group_id": self.name}  # fmt: skip

        return Step(
            f"{self.name}: {what}", ADD_OFFSETS, fields, (self.offsets_in,), None, _is_settled
        )

    def commit_offset(self, what: str, offset: int, who: Who | None = None) -> Step:
        def fields(seen: Seen, _version: int) -> Fields:
            producer_id, epoch = (who or self.now)(seen)
            row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
                   "committed_metadata": "m"}  # fmt: skip
            return {
                "transactional_id": self.name, "group_id": self.name, "producer_id": producer_id,
                "producer_epoch": epoch, "generation_id": -1, "member_id": "",
                "group_instance_id": None, "topics": [{"name": TOPIC, "partitions": [row]}],
            }  # fmt: skip

        return Step(
            f"{self.name}: {what}", COMMIT_OFFSETS, fields, (self.commit_in,), None, _is_settled
        )

    def committed(self, what: str, *, stable: bool = True) -> Step:
        groups = [{"group_id": self.name, "member_id": None, "member_epoch": -1,
                   "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]  # fmt: skip
        settle = _is_settled if stable else None
        fields = always(groups=groups, require_stable=True)
        return Step(f"{self.name}: {what}", ApiKey.OFFSET_FETCH, fields, (9,), None, settle)

    def produce(self, what: str, who: Who | None = None, *, plain: bool = False) -> Step:
        def fields(seen: Seen, _version: int) -> Fields:
            producer_id, epoch = (who or self.now)(seen)
            records = transactional(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=seen.values[self._sequence] if who is None else 0,
                attributes=0 if plain else TRANSACTIONAL,
            )
            return {
                "transactional_id": None if plain else self.name, "acks": -1, "timeout": 10_000,
                "topic_data": [{**self._named(seen, "name"), "partition_data": [
                    {"index": self.partition, "records": records}]}],
            }  # fmt: skip

        def note(seen: Seen, answer: Any) -> None:
            code = answer.responses[0].partition_responses[0].error_code.name
            if who is None and code == "none":
                seen.values[self._sequence] += 1

        version = _ADDS_BY_ITSELF if self.is_second_generation else 9
        version = _BY_ID if self._by_id else version
        return Step(f"{self.name}: {what}", ApiKey.PRODUCE, fields, (version,), note, _is_settled)

    @property
    def is_second_generation(self) -> bool:
        """Whether each of its transactions has an epoch of its own (KIP-890)."""
        return self.end_in >= _EPOCH_EACH

    @property
    def _sequence(self) -> str:
        return f"sequence of {self.name}"

    def end(self, what: str, *, commit: bool, who: Who | None = None) -> Step:
        def fields(seen: Seen, _version: int) -> Fields:
            producer_id, epoch = (who or self.now)(seen)
            return {"transactional_id": self.name, "producer_id": producer_id,
                    "producer_epoch": epoch, "committed": commit}  # fmt: skip

        def note(seen: Seen, answer: Any) -> None:
            if self.is_second_generation and answer.error_code.name == "none":
                seen.values[self.name] = answer.producer_id, answer.producer_epoch
                seen.values[self._sequence] = 0

        return Step(f"{self.name}: {what}", END, fields, (self.end_in,), note, _is_settled)

    def read(self, what: str, *, is_open: bool = False) -> Step:
        row = {"partition": self.partition, "current_leader_epoch": -1, "fetch_offset": 0,
               "last_fetched_epoch": -1, "log_start_offset": -1,
               "partition_max_bytes": 1 << 20}  # fmt: skip

        def fields(seen: Seen, _version: int) -> Fields:
            return {
                "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20,
                "isolation_level": 1, "session_id": 0, "session_epoch": -1,
                "forgotten_topics_data": [], "rack_id": "",
                "topics": [{**self._named(seen, "topic"), "partitions": [row]}],
            }  # fmt: skip

        def settle(answer: Any) -> bool:
            data = answer.responses[0].partitions[0]
            return is_open or bool(data.last_stable_offset == data.high_watermark)

        return Step(
            f"{self.name}: {what}",
            ApiKey.FETCH,
            fields,
            (_BY_ID if self._by_id else 12,),
            None,
            settle,
        )

    def _named(self, seen: Seen, field: str) -> Fields:
        return {"topic_id": seen.topics[TOPIC]} if self._by_id else {field: TOPIC}

    def latest(self, what: str) -> Step:
        rows = [{"partition_index": self.partition, "current_leader_epoch": -1, "timestamp": -1}]
        fields = always(replica_id=-1, isolation_level=1,
                        topics=[{"name": TOPIC, "partitions": rows}])  # fmt: skip
        return Step(f"{self.name}: {what}", ApiKey.LIST_OFFSETS, fields, (7,))

    def describe(self, what: str) -> Step:
        fields = always(transactional_ids=[self.name])
        return Step(f"{self.name}: {what}", ApiKey.DESCRIBE_TRANSACTIONS, fields)

    def describe_producers(self, what: str) -> Step:
        topics = [{"name": TOPIC, "partition_indexes": [self.partition]}]
        return Step(f"{self.name}: {what}", ApiKey.DESCRIBE_PRODUCERS, always(topics=topics))

    def second_generation(self) -> Iterator[Step]:
        """Yield the same of an id whose transactions have an epoch each."""
        for kind in (0, 1):
            yield Step(f"coordinator {kind}", ApiKey.FIND_COORDINATOR,
                       always(key=self.name, key_type=kind), (3,), None, _is_settled)  # fmt: skip
        yield self.init("the first time")
        yield self.end("abort of nothing", commit=False)
        yield self.produce("records")
        yield self.describe("open")
        yield self.describe_producers("its producer")
        yield self.read("while it is open", is_open=True)
        yield self.commit_offset("an offset", 5)
        yield self.committed("not yet", stable=False)
        yield self.end("commit with another epoch", commit=True, who=self.before)
        yield self.end("commit", commit=True)
        yield self.read("when it is committed")
        yield self.committed("the offset")
        yield self.end("commit again", commit=True, who=self.before)
        yield self.end("abort of what is committed", commit=False, who=self.before)
        yield self.produce("by the epoch before", self.before)
        yield self.produce("records to abort")
        yield self.commit_offset("an offset to abort", 9)
        yield self.end("abort", commit=False)
        yield self.end("abort again", commit=False, who=self.before)
        yield self.end("commit of what is aborted", commit=True, who=self.before)
        yield self.end("commit of nothing", commit=True)
        yield self.read("when it is aborted")
        yield self.committed("the offset of before")
        yield self.produce("records left open")
        yield self.init("another incarnation")
        yield self.read("when it was fenced")

    def steps(self) -> Iterator[Step]:
        """Yield everything that happens to the id, in order."""
        for kind in (0, 1):
            yield Step(f"coordinator {kind}", ApiKey.FIND_COORDINATOR,
                       always(key=self.name, key_type=kind), (3,), None, _is_settled)  # fmt: skip
        yield self.init("too long a timeout", timeout=10**9)
        yield self.init("no timeout", timeout=0)
        yield self.init("the first time")
        yield self.end("commit of nothing", commit=True)
        yield self.end("abort of nothing", commit=False)
        yield self.add("an unknown partition", None, (TOPIC, 0), ("unknown", 0), (TOPIC, 9))
        yield self.add("with another epoch", self.before)
        yield self.add("of somebody else", self.somebody)
        yield self.add("partitions")
        yield self.add("partitions again")
        yield self.describe("open")
        yield self.produce("records")
        yield self.produce("plain records inside", plain=True)
        yield self.describe_producers("its producer")
        yield self.read("while it is open", is_open=True)
        yield self.latest("end while it is open")
        yield self.commit_offset("offsets of no group", 5, self.somebody)
        yield self.add_offsets("its group")
        yield self.add_offsets("a group with another epoch", self.before)
        yield self.commit_offset("an offset", 5)
        yield self.committed("not yet", stable=False)
        yield self.end("commit with another epoch", commit=True, who=self.before)
        yield self.end("commit of somebody else", commit=True, who=self.somebody)
        yield self.end("commit", commit=True)
        yield self.end("commit again", commit=True)
        yield self.end("abort after it", commit=False)
        yield self.read("when it is committed")
        yield self.committed("the offset")
        yield self.describe("committed")
        yield self.add("the next")
        yield self.produce("records to abort")
        yield self.add_offsets("its group again")
        yield self.commit_offset("an offset to abort", 9)
        yield self.end("abort", commit=False)
        yield self.end("abort again", commit=False)
        yield self.end("commit after it", commit=True)
        yield self.read("when it is aborted")
        yield self.committed("the offset of before")
        yield self.describe("aborted")
        yield self.add("one that is left open")
        yield self.produce("records left open")
        yield self.init("another incarnation")
        yield self.read("when it was fenced")
        yield self.add("of the older incarnation", self.before)
        yield self.end("by the older incarnation", commit=True, who=self.before)
        yield self.produce("by the older incarnation", self.before)
        if self.init_in >= 3:
            yield self.init("with what it has", self.now)
            yield self.init("as somebody else", self.somebody)


_LT = ApiKey.LIST_TRANSACTIONS
TRANSACTIONS: Sequence[Step] = (
    *(
        step
        for number, versions in enumerate(LIVES)
        for step in Life(number, versions).steps()
    ),
    *Life(6, (5, 5, 4, _EPOCH_EACH, 5)).second_generation(),
    *Life(7, (5, 5, 4, _EPOCH_EACH, 5), by_id=True).second_generation(),
    Step("of an id that is not known", ADD, always(
        v3_and_below_transactional_id="nobody", v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0, transactional_id="nobody", producer_id=1, producer_epoch=0,
        v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
        topics=[{"name": TOPIC, "partitions": [0]}]), range(4), None, _is_settled),
    Step("end of an id that is not known", END, always(
        transactional_id="nobody", producer_id=1, producer_epoch=0, committed=True), range(5),
        None, _is_settled),
    Step("list", _LT, always(state_filters=[], producer_id_filters=[], duration_filter=-1,
                             transactional_id_pattern=None)),
    Step("list by state", _LT, always(state_filters=["Ongoing", "Sleeping"],
         producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None)),
    Step("list by pattern", _LT, always(state_filters=[], producer_id_filters=[],
         duration_filter=-1, transactional_id_pattern="life [12]"), (2,)),
    Step("list by a bad pattern", _LT, always(state_filters=[], producer_id_filters=[],
         duration_filter=-1, transactional_id_pattern="life ["), (2,)),
    Step("producers of what is unknown", ApiKey.DESCRIBE_PRODUCERS, always(topics=[
        {"name": TOPIC, "partition_indexes": [9]}, {"name": "unknown", "partition_indexes": [0]}])),
)  # fmt: skip

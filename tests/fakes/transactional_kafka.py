"""Transactions as Apache Kafka decides them, in memory: one coordinator, any partitions.

A dumb model that is easy to see through: no log of its own, markers written at once. It knows both
generations of the protocol, checks epochs and sequence numbers as partitions do, and keeps what a
reader of committed data sees. Requests and answers are plain values with kio's names, so that
clients with any kind of connection can be put on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode as Code

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import headers, records

At = tuple[str, int]
EPOCHS_MAX = 32_766


@dataclass
class Transactional:
    """A transactional id."""

    producer_id: int
    epoch: int = 0
    last: tuple[int, int] = (-1, -2)
    """What a repeated InitProducerId would expect."""
    state: str = "Empty"
    partitions: set[At] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    pending: dict[tuple[str, At], tuple[int, str]] = field(default_factory=dict)


@dataclass
class Batch:
    """What a partition stored."""

    producer_id: int
    epoch: int
    sequence: int
    values: list[bytes | None]
    state: str = "open"


class TransactionalKafka:
    """The brokers. `topics`: partitions of each."""

    def __init__(self, topics: Mapping[str, int], *, second_generation: bool = False) -> None:
        self.topics: dict[str, int] = {}
        self.second_generation = second_generation
        self.ids: dict[str, Transactional] = {}
        self.logs: dict[At, list[Batch]] = {}
        for name, count in topics.items():
            self.add_topic(name, count)
        self.offsets: dict[tuple[str, At], tuple[int, str]] = {}
        self.generations: dict[str, int] = {}
        """Of groups that have members."""
        self.codes: list[tuple[ApiKey, Code]] = []
        """Errors to answer instead, each once, in their order for each API."""
        self.metadata_bytes_max = 4096
        self._producer_ids = 0

    def add_topic(self, name: str, count: int) -> None:
        """Make a topic of so many partitions."""
        self.topics[name] = count
        self.logs.update({(name, index): [] for index in range(count)})

    # --- what tests look at ---------------------------------------------------------------

    def committed(self, *topics: str) -> list[bytes | None]:
        """Return what readers of committed data see, and that is all below the last stable offset
        once nothing is open."""
        return self._values("committed", topics)

    def open(self, *topics: str) -> list[bytes | None]:
        """Return what holds the last stable offsets back."""
        return self._values("open", topics)

    def expire(self, transactional_id: str) -> None:
        """Abort an open transaction as its time-out would: its epoch is over, too."""
        one = self.ids[transactional_id]
        if one.state == "Ongoing":
            self._finish(one, commit=False)
            self._bump(one)

    # --- requests -----------------------------------------------------------------------

    def handle(self, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """Answer a request."""
        handlers: dict[ApiKey, Callable[[int, Mapping[str, Any], Code], Any]] = {
            ApiKey.API_VERSIONS: self._features,
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.PRODUCE: self._produce,
            ApiKey.TXN_OFFSET_COMMIT: self._offset_commit,
            ApiKey.END_TXN: self._end,
            ApiKey.OFFSET_FETCH: self._offset_fetch,
            ApiKey.LIST_TRANSACTIONS: self._list,
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe,
        }
        planned = next((one for one in self.codes if one[0] is api), None)
        code = Code.none
        if planned is not None:
            self.codes.remove(planned)
            code = planned[1]
        return handlers[api](version, fields, code)

    def _values(self, state: str, topics: tuple[str, ...]) -> list[bytes | None]:
        return [
            value
            for (topic, _index), log in self.logs.items()
            if topic in topics or not topics
            for batch in log
            if batch.state == state
            for value in batch.values
        ]

    def _features(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        level = 2 if self.second_generation else 0
        feature = SimpleNamespace(name="transaction.version", max_version_level=level)
        return SimpleNamespace(error_code=code, finalized_features=(feature,))

    def _init(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        name = fields["transactional_id"]
        expected = fields.get("producer_id", -1), fields.get("producer_epoch", -1)
        one = self.ids.get(name)
        if code is Code.none and one is None:
            one = self.ids[name] = Transactional(self._next_producer_id())
        elif code is Code.none and one is not None:
            current = one.producer_id, one.epoch
            if expected == one.last:
                pass  # again, after a lost answer
            elif expected[0] >= 0 and expected != current:
                code = Code.producer_fenced if version >= 4 else Code.invalid_producer_epoch
            else:
                if one.state == "Ongoing":
                    self._finish(one, commit=False)
                one.last = current if expected[0] >= 0 else (-1, -2)
                self._bump(one)
                one.state = "Empty"
        if code is not Code.none or one is None:
            return SimpleNamespace(error_code=code, producer_id=-1, producer_epoch=-1)
        return SimpleNamespace(
            error_code=code, producer_id=one.producer_id, producer_epoch=one.epoch
        )

    def _add_partitions(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        wanted = [
            (topic["name"], index)
            for topic in fields["v3_and_below_topics"]
            for index in topic["partitions"]
        ]
        if code is Code.none:
            code, one = self._check(fields, "v3_and_below_")
            if one is not None:
                missing = [at for at in wanted if at not in self.logs]
                code = Code.unknown_topic_or_partition if missing else code
                if not missing:
                    self._join(one).update(wanted)
        rows = [
            SimpleNamespace(
                name=topic,
                results_by_partition=[
                    SimpleNamespace(partition_index=index, partition_error_code=code)
                ],
            )
            for topic, index in wanted
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=rows)

    def _add_offsets(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        if code is Code.none:
            code, one = self._check(fields)
            if one is not None:
                self._join(one)
                one.groups.add(fields["group_id"])
        return SimpleNamespace(error_code=code)

    def _produce(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        answers = []
        for topic in fields["topic_data"]:
            rows = []
            for row in topic["partition_data"]:
                at = topic["name"], row["index"]
                found = code
                if code is Code.none:
                    found = self._append(at, fields["transactional_id"], row["records"], version)
                rows.append(SimpleNamespace(index=at[1], error_code=found, error_message=None))
            answers.append(SimpleNamespace(name=topic["name"], partition_responses=rows))
        return SimpleNamespace(responses=answers)

    def _append(self, at: At, name: str | None, data: bytes, version: int) -> Code:
        """Store a batch, as a partition does: epoch, then transaction, then sequence number."""
        ((_position, header),) = headers(data)
        log = self.logs[at]
        mine = [batch for batch in log if batch.producer_id == header.producer_id]
        one = self.ids.get(name or "")
        if not header.is_transactional or one is None or one.producer_id != header.producer_id:
            return Code.invalid_txn_state
        newest = max([batch.epoch for batch in mine], default=-1)
        if header.producer_epoch < max(newest, one.epoch):
            return Code.invalid_producer_epoch
        same = [batch for batch in mine if batch.epoch == header.producer_epoch]
        for batch in same[-5:]:
            if batch.sequence == header.base_sequence and len(batch.values) == header.record_count:
                return Code.none
        following = same[-1].sequence + len(same[-1].values) if same else 0
        if header.base_sequence != following:
            return Code.out_of_order_sequence_number
        if at not in one.partitions:
            if version < 12:
                return Code.invalid_txn_state
            self._join(one).add(at)
        values = [record.value for record in records(data)]
        log.append(Batch(header.producer_id, header.producer_epoch, header.base_sequence, values))
        return Code.none

    def _offset_commit(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        group = fields["group_id"]
        if code is Code.none:
            code, one = self._check(fields)
            generation = self.generations.get(group, -1)
            if one is not None and fields["generation_id"] not in (generation, -1):
                code = Code.illegal_generation
            elif one is not None and version < 5 and group not in one.groups:
                code = Code.invalid_txn_state
            elif one is not None:
                self._join(one)
                code = self._stage(one, group, fields)
        topics = [
            SimpleNamespace(
                name=topic["name"],
                partitions=[
                    SimpleNamespace(partition_index=row["partition_index"], error_code=code)
                    for row in topic["partitions"]
                ],
            )
            for topic in fields["topics"]
        ]
        return SimpleNamespace(topics=topics)

    def _stage(self, one: Transactional, group: str, fields: Mapping[str, Any]) -> Code:
        for topic in fields["topics"]:
            for row in topic["partitions"]:
                metadata = row["committed_metadata"] or ""
                if len(metadata) > self.metadata_bytes_max:
                    return Code.offset_metadata_too_large
                at = topic["name"], row["partition_index"]
                one.pending[group, at] = row["committed_offset"], metadata
        return Code.none

    def _end(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        commit = bool(fields["committed"])
        name = fields["transactional_id"]
        one = self.ids.get(name)
        if code is Code.none:
            second = version >= 5
            wanted = "CompleteCommit" if commit else "CompleteAbort"
            given = fields["producer_id"], fields["producer_epoch"]
            if one is None:
                code = Code.invalid_producer_id_mapping
            elif second and given == (one.producer_id, one.epoch - 1) and one.state == wanted:
                pass  # again, after a lost answer
            elif given != (one.producer_id, one.epoch):
                code = Code.producer_fenced if version >= 2 else Code.invalid_producer_epoch
            elif one.state == "Ongoing" or (second and not commit):
                self._finish(one, commit=commit)
                if second:
                    self._bump(one)
            elif second or one.state != wanted:
                code = Code.invalid_txn_state
        known = one is not None and code is Code.none
        return SimpleNamespace(
            error_code=code,
            producer_id=one.producer_id if one is not None and known else -1,
            producer_epoch=one.epoch if one is not None and known else -1,
        )

    def _offset_fetch(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        group = fields["group_id"]
        pending = {at for one in self.ids.values() for (owner, at) in one.pending if owner == group}
        topics = []
        for topic in fields["topics"]:
            rows = []
            for index in topic["partition_indexes"]:
                at = topic["name"], index
                offset, metadata = self.offsets.get((group, at), (-1, ""))
                unstable = fields["require_stable"] and at in pending
                rows.append(
                    SimpleNamespace(
                        partition_index=index,
                        committed_offset=offset,
                        metadata=metadata,
                        error_code=Code.unstable_offset_commit if unstable else Code.none,
                    )
                )
            topics.append(SimpleNamespace(name=topic["name"], partitions=rows))
        return SimpleNamespace(error_code=code, topics=topics)

    def _list(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        wanted = fields["state_filters"]
        rows = [
            SimpleNamespace(
                transactional_id=name, producer_id=one.producer_id, transaction_state=one.state
            )
            for name, one in self.ids.items()
            if not wanted or one.state in wanted
        ]
        return SimpleNamespace(error_code=code, transaction_states=rows)

    def _describe(self, version: int, fields: Mapping[str, Any], code: Code) -> Any:
        rows = []
        for name in fields["transactional_ids"]:
            one = self.ids.get(name, Transactional(-1, -1, state=""))
            found = code if name in self.ids else Code.transactional_id_not_found
            rows.append(
                SimpleNamespace(
                    error_code=found,
                    transactional_id=name,
                    transaction_state=one.state,
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                )
            )
        return SimpleNamespace(transaction_states=rows)

    def _check(
        self, fields: Mapping[str, Any], prefix: str = ""
    ) -> tuple[Code, Transactional | None]:
        one = self.ids.get(fields[f"{prefix}transactional_id"])
        if one is None or one.producer_id != fields[f"{prefix}producer_id"]:
            return Code.invalid_producer_id_mapping, None
        if one.epoch != fields[f"{prefix}producer_epoch"]:
            return Code.producer_fenced, None
        return Code.none, one

    def _join(self, one: Transactional) -> set[At]:
        if one.state != "Ongoing":
            one.state = "Ongoing"
            one.partitions.clear()
            one.groups.clear()
        return one.partitions

    def _finish(self, one: Transactional, *, commit: bool) -> None:
        """Decide, and write all markers."""
        for at in self.logs:
            for batch in self.logs[at]:
                if batch.state == "open" and batch.producer_id == one.producer_id:
                    batch.state = "committed" if commit else "aborted"
        if commit:
            self.offsets.update(one.pending)
        one.pending.clear()
        one.partitions.clear()
        one.groups.clear()
        one.state = "CompleteCommit" if commit else "CompleteAbort"

    def _bump(self, one: Transactional) -> None:
        one.epoch += 1
        if one.epoch >= EPOCHS_MAX:
            one.producer_id, one.epoch = self._next_producer_id(), 0

    def _next_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

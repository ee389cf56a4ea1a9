"""Ask for the committed offsets of a group that no open transaction is about to move.

aiokafka asks in a version that knows nothing of transactions. A member that takes partitions over
while the one before it commits in a transaction would then begin at the older offsets, and
process records a second time (KIP-447). Asked as here, brokers say that an offset is not stable
yet, and the member waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, for_code
from aiokafka.structs import OffsetAndMetadata

from client.pubsub.kafka_requests import KafkaRequest, Versions
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.error_codes import ErrorCode as Code

_REQUIRE_STABLE: Final = Versions(7, 7)
_NONE_COMMITTED: Final = -1
_RETRIABLE: Final = (
    Code.unstable_offset_commit,
    Code.coordinator_load_in_progress,
    Code.coordinator_not_available,
    Code.not_coordinator,
)


class OffsetsNotStable(KafkaError):  # type: ignore[misc] # aiokafka has no types
    """The group's coordinator cannot say yet; aiokafka asks again."""

    retriable = True


class StableConsumer(AIOKafkaConsumer):  # type: ignore[misc] # aiokafka has no types
    """A consumer of a group that goes on at stable offsets only."""

    @property
    def _coordinator(self) -> Any:
        return self._its_coordinator

    @_coordinator.setter
    def _coordinator(self, coordinator: Any) -> None:
        """Made and used in one go by `start`, so this is where it can be changed."""
        self._its_coordinator = coordinator
        if coordinator is not None:
            _ask_for_stable(coordinator)


def _ask_for_stable(coordinator: Any) -> None:
    async def fetch(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        fields = {
            "group_id": coordinator.group_id,
            "topics": [
                {"name": topic, "partition_indexes": some} for topic, some in by_topic.items()
            ],
            "require_stable": True,
        }
        request = KafkaRequest(ApiKey.OFFSET_FETCH, fields, _REQUIRE_STABLE)
        answer = (await coordinator._send_req(request)).fields
        _check(answer.error_code, coordinator)
        offsets: dict[TopicPartition, Any] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                _check(row.error_code, coordinator)
                if row.committed_offset != _NONE_COMMITTED:
                    at = TopicPartition(str(topic.name), int(row.partition_index))
                    offsets[at] = OffsetAndMetadata(int(row.committed_offset), row.metadata or "")
        return offsets

    coordinator._do_fetch_commit_offsets = fetch


def _check(code: int, coordinator: Any) -> None:
    if code == Code.none:
        return
    if code in (Code.not_coordinator, Code.coordinator_not_available):
        coordinator.coordinator_dead()
    if code in _RETRIABLE:
        raise OffsetsNotStable(f"{Code(int(code)).name}: {coordinator.group_id}")
    raise for_code(int(code))()

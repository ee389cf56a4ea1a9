"""A heartbeat of the consumer protocol: what it says, what it is answered, and what is wrong with
it whatever the group. What it does to the group is in `consumer_group`.

Source: Kafka's ConsumerGroupHeartbeat schemas and GroupCoordinatorService, whose texts these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.errors import InvalidRequest, UnsupportedAssignor
from broker.groups.core.consumer_group_records import Held, Partitions
from broker.security.core.linear_pattern import LinearPattern

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_STATIC: Final = -2
"""Epochs of a heartbeat that are no epochs."""

UNKNOWN: Final = -1
"""Of a rebalance timeout that a heartbeat does not repeat."""


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. None, and a timeout of -1: the same as before."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    pattern: str | None
    """"": none any more."""
    assignor: str | None
    owned: Partitions | None
    sees: Callable[[str], bool]
    """Whether the client may know of a topic; a pattern matches no other."""

    @property
    def kept_bytes(self) -> int:
        """How much of it would be kept."""
        names = sum(map(len, self.topics or ()))
        return names + len(self.pattern or "") + len(self.member_id) + len(self.client_id)


class ConsumerHeartbeatReply(NamedTuple):
    """A successful answer."""

    member_id: str
    epoch: int
    assignment: Held | None
    """None: the same as before."""


def check_heartbeat(request: ConsumerHeartbeat, assignors: Sequence[str]) -> None:
    """Check what needs no group to be checked; Kafka's texts.

    Raises InvalidRequest, InvalidRegularExpression, UnsupportedAssignor.
    """
    if request.instance_id == "":
        raise InvalidRequest("InstanceId can't be empty.")
    if request.rack_id == "":
        raise InvalidRequest("RackId can't be empty.")
    if not request.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    if request.epoch == JOINING:
        _check_first(request)
    if request.rebalance_timeout_ms < UNKNOWN:
        raise InvalidRequest(f"RebalanceTimeoutMs of {request.rebalance_timeout_ms} is invalid.")
    if request.epoch == LEAVING_STATIC and request.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    if request.epoch < LEAVING_STATIC:
        raise InvalidRequest(f"MemberEpoch is invalid: {request.epoch}.")
    if request.assignor is not None and request.assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.assignor} is not supported. Supported assignors:"
            f" {', '.join(assignors)}."
        )
    if request.pattern:
        LinearPattern(request.pattern)


def _check_first(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == UNKNOWN:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.pattern is None:
        raise InvalidRequest(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining."
        )

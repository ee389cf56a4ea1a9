"""What ShareFetch and ShareAcknowledge have in common: who asks, of which partition, and what
becomes of the records that he names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from broker.cluster.core.features import SHARE_VERSION
from broker.errors import (
    BrokerError,
    InconsistentTopicId,
    InvalidRecordState,
    InvalidRequest,
    NotLeader,
    UnknownTopicId,
)
from broker.faults import Code, code_of, message_of
from broker.front.core.share_sessions import Key, ShareSession
from broker.front.endpoints import leader_endpoints
from broker.front.services import Call, Services
from broker.groups.core.share_group import NAME_CHARS_MAX
from broker.partition.core.append_queue import Append
from broker.partition.core.shares.share_partition import RENEW, Acknowledgement, ShareTerms
from broker.partition.leading.partition_shares import settled
from broker.partition.partition import Partition
from broker.security.rights import READ_GROUP, READ_TOPIC
from client.errors import QuireError

SHARE_GROUPS: Final = 1
"""The level of `share.version` from which on there are share groups."""
_NO_LEADER: Final = {"leader_id": -1, "leader_epoch": -1}

Acknowledgements = Mapping[Key, Sequence[Acknowledgement]]


def names(services: Services, call: Call, request: Any) -> tuple[str, str]:
    """Return the group and the member that ask, if the client may read for the group.

    Raises InvalidRequest, UnsupportedVersion, GroupAuthorizationFailed.
    """
    group_id, member_id = request.group_id, request.member_id
    if not group_id or not member_id:
        raise InvalidRequest("a share session has a group and a member")
    if any(len(name) > NAME_CHARS_MAX for name in (group_id, member_id)):
        raise InvalidRequest(
            f"names of share groups and members: at most {NAME_CHARS_MAX} characters"
        )
    services.rights.require(call.peer, READ_GROUP, group_id)
    services.features.require(SHARE_VERSION, SHARE_GROUPS)
    return group_id, member_id


def keys(topics: Iterable[Any]) -> list[Key]:
    """Return the partitions that a request names."""
    return [
        (topic.topic_id, partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if topic.topic_id is not None
    ]


def acknowledgements(topics: Iterable[Any]) -> Acknowledgements:
    """Return what a request acknowledges. Raises InvalidRequest."""
    found: dict[Key, Sequence[Acknowledgement]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if not partition.acknowledgement_batches:
                continue
            key = topic.topic_id, partition.partition_index
            if topic.topic_id is None or key in found:
                raise InvalidRequest("a partition is named without its topic's id, or twice")
            found[key] = [
                Acknowledgement(one.first_offset, one.last_offset, one.acknowledge_types)
                for one in partition.acknowledgement_batches
            ]
    return found


def leader_of(services: Services, call: Call, key: Key) -> Partition:
    """Return a partition that this broker leads, for a client that may read it.

    Raises UnknownTopicId, TopicAuthorizationFailed, NotLeader, InconsistentTopicId.
    """
    topic_id, index = key
    topic = services.cluster.topic_by_id.get(topic_id)
    if topic is None:
        raise UnknownTopicId(f"no topic has the id {topic_id}")
    services.rights.require(call.peer, READ_TOPIC, topic.name)
    partition = services.partitions.leader(topic.name, index)
    if partition.topic.topic_id != topic_id:
        raise InconsistentTopicId(f"{partition.name} was deleted and created again")
    partition.check_leading()
    return partition


async def acknowledge(
    services: Services,
    call: Call,
    session: ShareSession,
    asked: Acknowledgements,
    terms: ShareTerms,
    *,
    may_renew: bool,
) -> dict[Key, QuireError | None]:
    """Settle, release or renew records of a member; what that changed is durable on return.

    Returns an outcome for each partition.
    """
    outcomes: dict[Key, QuireError | None] = {}
    under_way: dict[Key, Append] = {}
    pace = services.turns.pace()
    for key, batches in asked.items():
        await pace.item()
        outcomes[key] = None
        try:
            if not may_renew and any(RENEW in one.types for one in batches):
                raise InvalidRequest("the request renews no locks")
            shares = leader_of(services, call, key).shares
            share = shares.find(session.group_id, session.incarnation)
            if share is None:
                raise InvalidRecordState(f"the group {session.group_id} holds nothing here")
            written = shares.acknowledge(share, session.member_id, batches, terms)
        except QuireError as error:
            outcomes[key] = error
        else:
            if written is not None:
                under_way[key] = written
    for key, written in under_way.items():
        try:
            await settled(written)
        except BrokerError as error:
            outcomes[key] = error
    return outcomes


def end_session(services: Services, session: ShareSession) -> None:
    """End a session; its member holds nothing here any more."""
    services.shares.sessions.end(session)
    release(services, session)


def release(services: Services, session: ShareSession) -> None:
    """Take back what the member of a session holds."""
    for partition in services.partitions:
        if partition.has_shares:
            partition.shares.release(session.group_id, session.member_id)


def problem(error: QuireError | None) -> dict[str, Any]:
    """Return the fields of an error, or of none."""
    if error is None:
        return {"error_code": Code.none, "error_message": None}
    return {"error_code": code_of(error), "error_message": message_of(error)}


def refusal(error: QuireError) -> dict[str, Any]:
    """Return an answer that refuses the whole request."""
    return {
        **problem(error),
        "acquisition_lock_timeout": 0,
        "responses": [],
        "node_endpoints": [],
    }


def leader_hint(error: QuireError | None) -> dict[str, int]:
    """Return who leads a partition, as far as the error knows."""
    if isinstance(error, NotLeader) and error.leader is not None:
        return {"leader_id": error.leader, "leader_epoch": error.epoch}
    return _NO_LEADER


def by_topic(rows: Mapping[Key, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of partitions as answers have them."""
    topics: dict[UUID, list[Mapping[str, Any]]] = {}
    for (topic_id, _), row in rows.items():
        topics.setdefault(topic_id, []).append(row)
    return [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()]


def endpoints(services: Services, call: Call, leaders: Collection[int]) -> list[dict[str, Any]]:
    """Return where leaders that an answer names can be reached."""
    known = leader_endpoints(services, leaders, call.peer) if leaders else []
    return [one._asdict() for one in known]

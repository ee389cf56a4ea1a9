"""OffsetCommit (8), versions 2-10: store how far a group has read.

Behaviour: durable before the answer, and shown to nobody before. Who may commit is decided by
`broker/groups/core/group.py`; a partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION
while the others are stored. Very many are stored in several batches, one after the other. Metadata
string and leader epoch are returned as they were given.

Versions: 2-4 may ask for a retention of their own, 6+ leader epoch, 7+ static members, 9+ an
unknown group is GROUP_ID_NOT_FOUND (before: ILLEGAL_GENERATION), 10+ topics by id: what this broker
does not know gets UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.errors import BrokerError, GroupIdNotFound
from broker.faults import Code, code_of
from broker.front.offset_commits import commit_offsets, outcome_codes
from broker.front.services import Call, Services
from broker.groups.core.group_types import Commit, OffsetToCommit
from broker.security.rights import READ_GROUP, READ_TOPIC
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.OFFSET_COMMIT
VERSIONS: Final = (2, 10)
NEEDS: Final = (READ_GROUP, READ_TOPIC)

_GROUP_ID_NOT_FOUND_FROM: Final = 9
_MEMBER_EPOCH_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each partition."""
    return await commit_offsets(
        services,
        request.topics,
        partial(_commit, services, call, request),
        who=call.peer,
        refusal=services.rights.code(call.peer, READ_GROUP, request.group_id),
        by_id=call.version >= _TOPIC_IDS_FROM,
    )


async def _commit(
    services: Services, call: Call, request: Any, offsets: list[OffsetToCommit]
) -> list[int]:
    commit = Commit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=field(request, "group_instance_id"),
        generation=request.generation_id_or_member_epoch,
        has_member_epoch=call.version >= _MEMBER_EPOCH_FROM,
    )
    try:
        coordinator = services.groups.coordinator(request.group_id)
        outcomes = await coordinator.commit(
            commit, offsets, retention_ms=field(request, "retention_time", -1)
        )
    except GroupIdNotFound as error:
        known = call.version >= _GROUP_ID_NOT_FOUND_FROM
        return [code_of(error) if known else int(Code.illegal_generation)] * len(offsets)
    except BrokerError as error:
        return [code_of(error)] * len(offsets)
    return outcome_codes(outcomes)

"""TxnOffsetCommit (28), versions 0-6: offsets that count when a transaction commits.

Behaviour: durable before the answer, and shown to nobody before the transaction commits
(`broker/groups/core/group_offsets.py`). The group's log is a partition of the transaction: the
coordinator of the transaction is asked before the first offsets of a transaction are stored.
A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION while the others are stored.

Versions: 2+ leader epoch, 3+ member id, generation and static members, which are checked if they
are given, 4+ know TRANSACTION_ABORTABLE, 5+ the request itself adds the group's log to the
transaction (`transaction.version` 2), 6+ topics by id, and errors of members by their own codes
(before: ILLEGAL_GENERATION).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.errors import (
    BrokerError,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidRequest,
    OldConnection,
    StaleMemberEpoch,
    TransactionAbortable,
    TransactionsDisabled,
)
from broker.faults import Code, code_of
from broker.front.offset_commits import commit_offsets, outcome_codes
from broker.front.services import Call, Services
from broker.groups.core.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    Commit,
    OffsetToCommit,
    ProducerEpoch,
)
from broker.partition.core.held_batches import ProducerTransaction
from broker.security.rights import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.TXN_OFFSET_COMMIT
VERSIONS: Final = (0, 6)
NEEDS: Final = (READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID)

_ABORTABLE_FROM: Final = 4
_TV2_FROM: Final = 5
_TOPIC_IDS_FROM: Final = 6
_MEMBER_ERRORS_FROM: Final = 6


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each partition."""
    rights = services.rights
    return await commit_offsets(
        services,
        request.topics,
        partial(_commit, services, call, request),
        who=call.peer,
        refusal=rights.code(call.peer, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        or rights.code(call.peer, READ_GROUP, request.group_id),
        by_id=call.version >= _TOPIC_IDS_FROM,
    )


async def _commit(
    services: Services, call: Call, request: Any, offsets: list[OffsetToCommit]
) -> list[int]:
    has_ids = call.version >= _TOPIC_IDS_FROM
    generation = "generation_id_or_member_epoch" if has_ids else "generation_id"
    commit = Commit(
        group_id=request.group_id,
        member_id=field(request, "member_id", NO_MEMBER),
        instance_id=field(request, "group_instance_id"),
        generation=field(request, generation, NO_GENERATION),
    )
    is_tv2 = call.version >= _TV2_FROM
    producer = ProducerEpoch(
        ProducerId(request.producer_id),
        request.producer_epoch,
        ProducerTransaction(request.transactional_id, is_tv2),
    )
    try:
        _check(services, request)
        coordinator = services.groups.coordinator(request.group_id)
        outcomes = await coordinator.commit_in_transaction(
            commit, offsets, producer, call.connection
        )
    except OldConnection:
        raise
    except TransactionAbortable:
        known = call.version >= _ABORTABLE_FROM
        code = Code.transaction_abortable if known else Code.invalid_txn_state
        return [int(code)] * len(offsets)
    except (StaleMemberEpoch, GroupIdNotFound) as error:
        known = call.version >= _MEMBER_ERRORS_FROM
        return [code_of(error) if known else int(Code.illegal_generation)] * len(offsets)
    except BrokerError as error:
        return [code_of(error)] * len(offsets)
    return outcome_codes(outcomes)


def _check(services: Services, request: Any) -> None:
    if not services.config.transactions.enabled:
        raise TransactionsDisabled("transactions.enabled is off")
    if not request.transactional_id:
        raise InvalidRequest("a transactional id must not be empty")
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    if request.producer_id < 0 or request.producer_epoch < 0:
        raise InvalidRequest("a transactional producer must give its id and epoch")

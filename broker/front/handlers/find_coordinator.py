"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id.

Behaviour: creates the internal topic when it is first needed. Versions 0-3 ask for one key, 4+ for
several; each gets one answer. The address is chosen as in Metadata, by how the client
connected. While the partition is between two leaders, or new and had none yet, the answer waits,
for `metadata_hold_max_ms` at most (`broker/cluster/leader_changes.py`): a broker that is named
before it knows of it refuses, and clients back off. The broker named may still be taking the
partition over: the requests that clients begin with wait there (`coordinator/coordinators.py`),
others are answered with COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR, and clients ask again.

Deviations from Kafka: share groups (key type 2) are refused with INVALID_REQUEST and a message,
because this broker does not coordinate them; transactional ids (1), where transactions are switched
off, with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients end with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.access.rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from broker.cluster.core.topology import BrokerInfo
from broker.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest
from broker.faults import Code, code_of, message_of
from broker.front.endpoints import endpoint_for
from broker.front.services import Call, Services
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = (0, 6)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID)

_BATCHED_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_KINDS: Final = {2: "share groups"}


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the coordinator of each key."""
    kind = field(request, "key_type", _GROUP)
    if call.version < _BATCHED_FROM:
        return await _find(services, call, kind, request.key)
    pace = services.turns.pace()
    coordinators = []
    for key in dict.fromkeys(request.coordinator_keys):
        await pace.item()
        coordinators.append(await _find(services, call, kind, key))
    return {"throttle_time": 0, "coordinators": coordinators}


async def _find(services: Services, call: Call, kind: int, key: str) -> dict[str, Any]:
    try:
        broker = await _coordinator(services, call, kind, key)
        endpoint = endpoint_for(services, broker, call.peer)
        if endpoint is None:
            raise CoordinatorNotAvailable(
                f"broker {broker.id} has no {call.peer.listener} listener"
            )
    except BrokerError as error:
        return _answer(key, -1, "", -1, code_of(error), message_of(error))
    return _answer(key, broker.id, *endpoint, Code.none, None)


async def _coordinator(services: Services, call: Call, kind: int, key: str) -> BrokerInfo:
    if kind == _GROUP:
        services.rights.require(call.peer, DESCRIBE_GROUP, key)
        await services.leader_changes.settle_one(*await services.groups.place(key))
        return await services.groups.find(key)
    if kind == _TRANSACTION:
        services.rights.require(call.peer, DESCRIBE_TRANSACTIONAL_ID, key)
        await services.leader_changes.settle_one(*await services.transactions.place(key))
        return await services.transactions.find(key)
    name = _KINDS.get(kind, f"coordinators of type {kind}")
    raise InvalidRequest(f"this broker does not serve {name}")


def _answer(
    key: str, node_id: int, host: str, port: int, code: int, message: str | None
) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "key": key,
        "node_id": node_id,
        "host": host,
        "port": port,
        "error_code": code,
        "error_message": message,
    }

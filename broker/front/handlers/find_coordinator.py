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

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest
from broker.faults import Code, code_of, message_of
from broker.front.endpoints import endpoint_for
from broker.front.services import Call, Services
from broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from client.node.turns import Pace
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = (0, 6)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID)

_BATCHED_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_KINDS: Final = {2: "share groups"}


class Coordinated(Protocol):
    """One kind of keys that have coordinators: groups, transactional ids."""

    async def place(self, key: str, /) -> tuple[TopicInfo, int]:
        """Return the topic and the index of the partition that keeps a key."""
        ...

    async def find(self, key: str, /) -> BrokerInfo:
        """Return the broker that should coordinate a key."""
        ...


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the coordinator of each key."""
    kind = field(request, "key_type", _GROUP)
    pace = services.turns.pace()
    if call.version < _BATCHED_FROM:
        obstacle = await _settle(services, pace, call, kind, (request.key,))
        return await _find(services, call, kind, request.key, obstacle)
    keys = tuple(dict.fromkeys(request.coordinator_keys))
    obstacle = await _settle(services, pace, call, kind, keys)
    coordinators = []
    for key in keys:
        await pace.item()
        coordinators.append(await _find(services, call, kind, key, obstacle))
    return {"throttle_time": 0, "coordinators": coordinators}


async def _settle(
    services: Services, pace: Pace, call: Call, kind: int, keys: Sequence[str]
) -> CoordinatorNotAvailable | None:
    """Wait while a partition that keeps one of the keys is between two leaders: once for all.

    Returns why there is no topic that keeps them, if so: it is tried once for all, too.
    """
    topic, indexes = None, set[int]()
    for key in keys:
        await pace.item()
        try:
            topic, index = await _coordinators(services, call, kind, key).place(key)
        except CoordinatorNotAvailable as error:
            return error
        except BrokerError:
            continue  # its answer says so
        indexes.add(index)
    if topic is not None:
        await services.leader_changes.settle_some(topic, frozenset(indexes))
    return None


async def _find(
    services: Services, call: Call, kind: int, key: str, obstacle: CoordinatorNotAvailable | None
) -> dict[str, Any]:
    """Return the answer to one key; `obstacle`: why there is none, if its client may know that."""
    try:
        coordinators = _coordinators(services, call, kind, key)
        if obstacle is not None:
            return _refusal(key, obstacle)
        broker = await coordinators.find(key)
        endpoint = endpoint_for(services, broker, call.peer)
        if endpoint is None:
            raise CoordinatorNotAvailable(
                f"broker {broker.id} has no {call.peer.listener} listener"
            )
    except BrokerError as error:
        return _refusal(key, error)
    return _answer(key, broker.id, *endpoint, Code.none, None)


def _coordinators(services: Services, call: Call, kind: int, key: str) -> Coordinated:
    """Return who knows the coordinators of a kind of keys.

    Raises InvalidRequest (nobody does), and what a key without rights is answered with.
    """
    if kind == _GROUP:
        services.rights.require(call.peer, DESCRIBE_GROUP, key)
        return services.groups
    if kind == _TRANSACTION:
        services.rights.require(call.peer, DESCRIBE_TRANSACTIONAL_ID, key)
        return services.transactions
    name = _KINDS.get(kind, f"coordinators of type {kind}")
    raise InvalidRequest(f"this broker does not serve {name}")


def _refusal(key: str, error: BrokerError) -> dict[str, Any]:
    return _answer(key, -1, "", -1, code_of(error), message_of(error))


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

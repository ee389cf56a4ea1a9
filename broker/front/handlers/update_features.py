"""UpdateFeatures (57), versions 0-2: an operator raises or lowers what the cluster uses.

Behaviour: all updates of a request take effect, or none; the answer comes when the change is
stored and known to this broker, the others follow. What an operator has set once, the brokers no
longer raise by themselves. `validate_only`, from version 1 on, says what would happen. Version 0
may lower a feature if `allow_downgrade` is set, later ones say so by the type of the update.

Deviations from Kafka: a lossless and a lossy downgrade are the same. A transaction of the second
protocol that is open while `transaction.version` is lowered is ended in it.

Source: KIP-584, KIP-778, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.cluster.core.features import FeatureUpdate, UpdateType
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.security.rights import ALTER_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.UPDATE_FEATURES
VERSIONS: Final = (0, 2)
NEEDS: Final = (ALTER_CLUSTER,)

_TYPES_FROM: Final = 1
_RESULTS_TO: Final = 1


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Change levels, or say why not."""
    services.rights.require(call.peer, ALTER_CLUSTER)
    updates = [_update(call.version, row) for row in request.feature_updates]
    error: QuireError | None = None
    try:
        await services.features.update(
            updates, validate_only=field(request, "validate_only", False)
        )
    except QuireError as refused:
        error = refused
    if error is None and not field(request, "validate_only", False):
        for one in updates:
            audit.note(call, f"feature {one.name}: level {one.level}")
    code = Code.none if error is None else code_of(error)
    text = None if error is None else message_of(error)
    answer: dict[str, Any] = {"throttle_time": 0, "error_code": code, "error_message": text}
    if call.version <= _RESULTS_TO:
        answer["results"] = [
            {"feature": one.name, "error_code": Code.none, "error_message": None}
            for one in (updates if error is None else ())
        ]
    return answer


def _update(version: int, row: Any) -> FeatureUpdate:
    if version < _TYPES_FROM:
        kind = UpdateType.SAFE_DOWNGRADE if row.allow_downgrade else UpdateType.UPGRADE
        return FeatureUpdate(row.feature, row.max_version_level, kind)
    return FeatureUpdate(row.feature, row.max_version_level, row.upgrade_type)

"""ApiVersions (18), versions 0-5: which APIs and versions this broker serves.

Behaviour: the list is exactly the registered handlers, because a client picks per API and falls
back only from a key that is absent. A version above ours is answered by `broker/front/dispatch.py`
in the layout of version 0.

Versions: 3+ name features. `transaction.version` is published once every broker knows level 2,
unless an operator has chosen another one; until then clients use the classic transaction protocol.
5+ may name the cluster and the broker that the client wants. If it has reached another one, because
an address was given to somebody else, it gets REBOOTSTRAP_REQUIRED and nothing more (KIP-1242).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from broker.cluster.core.features import KNOWN, published
from broker.cluster.features import Features
from broker.faults import Code
from broker.front.services import Call, Services
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.API_VERSIONS
VERSIONS: Final = (0, 5)
NEEDS: Final = ()

_SOFTWARE_FROM: Final = 3
_FEATURES_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the table of served versions."""
    code = Code.none
    if call.version >= _SOFTWARE_FROM:
        named = (field(request, "client_software_name"), field(request, "client_software_version"))
        if not all(_SOFTWARE.fullmatch(text) for text in named):
            code = Code.invalid_request
        else:
            services.telemetry.note_software(call.connection, *named)
            if not _is_wanted(services, request):
                return {"error_code": Code.rebootstrap_required, "api_keys": []}
    answer: dict[str, Any] = {
        "error_code": code,
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in sorted(services.served.items())
        ],
    }
    return answer | _features(services.features) if call.version >= _FEATURES_FROM else answer


def _is_wanted(services: Services, request: Any) -> bool:
    """Say whether this is the cluster and the broker that the client wants, if it names them."""
    cluster_id = field(request, "cluster_id")
    if cluster_id is None:
        return True
    wanted = cluster_id, field(request, "node_id")
    return wanted == (services.cluster.cluster_id, services.config.node_id)


def _features(features: Features) -> dict[str, Any]:
    epoch, levels, *_ = features.finalized
    return {
        "supported_features": [
            {"name": name, "min_version": 0, "max_version": level}
            for name, level in published(KNOWN).items()
        ],
        "finalized_features_epoch": epoch,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in published(levels).items()
        ],
    }

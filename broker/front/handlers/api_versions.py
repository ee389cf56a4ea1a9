"""ApiVersions (18), versions 0-4: which APIs and versions this broker serves.

Behaviour: the list is exactly the registered handlers, because a client picks per API and falls
back only from a key that is absent. A version above ours is answered by `broker/front/dispatch.py`
in the layout of version 0.

Deviations from Kafka: no features are published; in particular no `transaction.version`, which
makes Java clients use the classic transaction protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.API_VERSIONS
VERSIONS: Final = (0, 4)
NEEDS: Final = ()

_SOFTWARE_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the table of served versions."""
    code = Code.none
    if call.version >= _SOFTWARE_FROM:
        named = (field(request, "client_software_name"), field(request, "client_software_version"))
        if not all(_SOFTWARE.fullmatch(text) for text in named):
            code = Code.invalid_request
    return {
        "error_code": code,
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in sorted(services.served.items())
        ],
    }

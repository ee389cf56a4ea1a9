"""SaslHandshake (17), version 1: the client chooses a SASL mechanism.

Behaviour: `broker/security/core/sasl.py`. A mechanism that is not offered is answered with those
that are, then the connection is closed; so is one whose client is in the middle of another login.

Deviations from Kafka: version 0, after which tokens came without headers, is not served.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from broker.security.core.sasl import Handshake
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.SASL_HANDSHAKE
VERSIONS: Final = (1, 1)
NEEDS: Final = ()

_CODES: Final = {
    Handshake.DONE: Code.none,
    Handshake.UNSUPPORTED: Code.unsupported_sasl_mechanism,
    Handshake.OUT_OF_TURN: Code.illegal_sasl_state,
}


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the mechanisms that there are."""
    if call.login is None:
        return {"error_code": Code.illegal_sasl_state, "mechanisms": []}
    outcome = call.login.handshake(request.mechanism)
    return {"error_code": _CODES[outcome], "mechanisms": call.login.mechanisms}

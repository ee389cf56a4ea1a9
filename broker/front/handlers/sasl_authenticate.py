"""SaslAuthenticate (36), versions 0-2: a token of the SASL mechanism that was chosen.

Behaviour: `broker/security/core/sasl.py`, `broker/security/login.py`. A failure is answered late
and in general terms; then the connection is closed. While the metadata store does not say what
passwords there are, or too many logins of the client's address have just failed, the error is one
that clients retry.

Versions: 1+ say how long the login is good for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import AccessUnknown, TooManyLogins
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.security.core.sasl import Accepted, Challenge
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.SASL_AUTHENTICATE
VERSIONS: Final = (0, 2)
NEEDS: Final = ()


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the next token, or whether the client is who it says."""
    if call.login is None:
        return _answer(Code.illegal_sasl_state, "there is no SASL on this listener")
    try:
        outcome = await call.login.authenticate(call.peer.host, bytes(request.auth_bytes))
    except (AccessUnknown, TooManyLogins) as error:
        return _answer(code_of(error), message_of(error))
    del request  # who waits holds nothing of it
    await call.login.wait()
    if isinstance(outcome, Challenge):
        return _answer(Code.none, None, outcome.token)
    if isinstance(outcome, Accepted):
        return _answer(Code.none, None, outcome.token, call.login.lifetime_ms)
    text = "Authentication failed: the user or the password is wrong"
    return _answer(Code.sasl_authentication_failed, text)


def _answer(
    code: int, message: str | None, token: bytes = b"", lifetime_ms: int = 0
) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        "auth_bytes": token,
        "session_lifetime": lifetime_ms,
    }

"""AlterUserScramCredentials (51), version 0: set and remove users' SCRAM credentials (KIP-554).

Behaviour: the client salts the password; what is kept is derived from that and tells nobody how to
log in. Changes of one user are made together, or none of them; one that is named twice for the same
mechanism is refused.

Deviations from Kafka: user names have at most 1,000 characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.errors import (
    DuplicateResource,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.security.core.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SCRAM_NUMBERS,
    Mechanism,
    ScramCredential,
    credential_of,
)
from broker.security.rights import ALTER_CLUSTER
from broker.security.users import Credentials, without
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)
NEEDS: Final = (ALTER_CLUSTER,)

_NAME_CHARS_MAX: Final = 1_000
_PASSWORD_BYTES_MAX: Final = 64
"""Of a salted one: as long as the longest hash."""

_Changes = dict[Mechanism, ScramCredential | None]
"""None: it goes."""


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Change each user by itself."""
    await services.users.start()
    asked: dict[str, list[Any]] = {}
    for row in (*request.deletions, *request.upsertions):
        asked.setdefault(row.name, []).append(row)
    pace = services.turns.pace()
    results = []
    for name, rows in asked.items():
        await pace.item()
        code, message = int(Code.none), None
        try:
            services.rights.require(call.peer, ALTER_CLUSTER)
            changes = _changes(name, rows)
            await services.users.edit(name, partial(_changed, changes, name))
            audit.note(call, f"user {name}: {', '.join(changes)}")
        except QuireError as error:
            code, message = code_of(error), message_of(error)
        results.append({"user": name, "error_code": code, "error_message": message})
    return {"throttle_time": 0, "results": results}


def _changes(name: str, rows: list[Any]) -> _Changes:
    if not name or len(name) > _NAME_CHARS_MAX:
        raise UnacceptableCredential(f"a user name must have 1 to {_NAME_CHARS_MAX} characters")
    changes: _Changes = {}
    for row in rows:
        mechanism = SCRAM_NUMBERS.get(row.mechanism)
        if mechanism is None:
            raise UnsupportedSaslMechanism(f"there is no SCRAM mechanism {row.mechanism}")
        if mechanism in changes:
            raise DuplicateResource(f"the request names {mechanism} of user {name!r} twice")
        changes[mechanism] = _credential(mechanism, row) if hasattr(row, "salt") else None
    return changes


def _credential(mechanism: Mechanism, row: Any) -> ScramCredential:
    if not ITERATIONS_MIN <= row.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"{row.iterations} iterations: from {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        )
    if not 0 < len(row.salt) <= SALT_BYTES_MAX:
        raise UnacceptableCredential(f"a salt must have 1 to {SALT_BYTES_MAX} bytes")
    if not 0 < len(row.salted_password) <= _PASSWORD_BYTES_MAX:
        raise UnacceptableCredential("the salted password is empty or too long")
    return credential_of(mechanism, row.salted_password, row.salt, row.iterations)


def _changed(changes: _Changes, name: str, kept: Credentials) -> Credentials:
    for mechanism, credential in changes.items():
        if credential is None:
            kept = without(kept, mechanism, name)
        else:
            kept = {**kept, mechanism: credential}
    return kept

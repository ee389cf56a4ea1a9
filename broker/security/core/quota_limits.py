"""What is limited of whom: Kafka's quota entities, and which of them counts for a client.

An entity names a user, a client id, both, or an address; a name that is None stands for all that
have no entry of their own. For a client the first of these that has the limit counts:

    user and client id, user and any client id, user,
    any user and client id, any user and any client id, any user,
    client id, any client id

Who shares a limit: all connections of the user, of the client id, or of both, as the entity has
them. Sources: KIP-13, KIP-55, KIP-257, KIP-546, KIP-612.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.errors import InvalidRequest

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

Entity = tuple[tuple[str, str | None], ...]
"""Sorted pairs of a type and a name; None: all that have no entry of their own."""
Owner = tuple[str | None, str | None]
"""Whose requests share a limit: user and client id, or an address and nothing."""


class QuotaKey(enum.StrEnum):
    """What can be limited."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


WHOLE_NUMBERS: Final = (
    QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.CONNECTION_CREATION_RATE,
)  # fmt: skip
_WHOLE_END: Final = 2.0**63

Limits = Mapping[Entity, Mapping[str, float]]


class Limit(NamedTuple):
    """What counts for a client, and who shares it with it."""

    rate: float
    owner: Owner


class QuotaLimits:
    """All limits of the moment."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or {}
        self.keys = frozenset(key for values in self._limits.values() for key in values)
        """What is limited of anybody."""

    def of_client(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None: there is none."""
        for entity, owner in (
            (((CLIENT_ID, client_id), (USER, user)), (user, client_id)),
            (((CLIENT_ID, None), (USER, user)), (user, client_id)),
            (((USER, user),), (user, None)),
            (((CLIENT_ID, client_id), (USER, None)), (user, client_id)),
            (((CLIENT_ID, None), (USER, None)), (user, client_id)),
            (((USER, None),), (user, None)),
            (((CLIENT_ID, client_id),), (None, client_id)),
            (((CLIENT_ID, None),), (None, client_id)),
        ):
            rate = self._limits.get(entity, {}).get(key)
            if rate is not None:
                return Limit(rate, owner)
        return None

    def of_address(self, key: QuotaKey, host: str) -> Limit | None:
        """Return the limit of an address; None: there is none."""
        for entity in (((IP, host),), ((IP, None),)):
            rate = self._limits.get(entity, {}).get(key)
            if rate is not None:
                return Limit(rate, (host, None))
        return None


class Wanted(NamedTuple):
    """One part of a filter for entities: what the entity's part of that type has to be."""

    type: str
    is_any: bool
    """Any name, or none."""
    name: str | None
    """None: the entry for all that have none of their own."""


def matches(entity: Entity, wanted: Iterable[Wanted], *, strict: bool) -> bool:
    """Say whether a filter means an entity; `strict`: it may have no other part."""
    parts = dict(entity)
    asked = list(wanted)
    if strict and len(parts) != len(asked):
        return False
    return all(one.type in parts and (one.is_any or parts[one.type] == one.name) for one in asked)


def check_types(types: Iterable[str]) -> None:
    """Check that types of entities can be together. Raises InvalidRequest."""
    seen: set[str] = set()
    for one in types:
        if one not in ENTITY_TYPES:
            raise InvalidRequest(f"there is no entity type {one[:100]!r} of quotas")
        if one in seen:
            raise InvalidRequest(f"the entity type {one} is named twice")
        seen.add(one)
    if IP in seen and len(seen) > 1:
        raise InvalidRequest("an address cannot be combined with a user or a client id")


def check_value(entity: Entity, key: str, value: float) -> None:
    """Check one limit that shall be set. Raises InvalidRequest."""
    is_of_address = any(kind == IP for kind, _ in entity)
    known = [one for one in QuotaKey if (one is QuotaKey.CONNECTION_CREATION_RATE) == is_of_address]
    if key not in known:
        names = ", ".join(known)
        raise InvalidRequest(f"such an entity has no quota {key[:100]!r}; it has {names}")
    if not value > 0:
        raise InvalidRequest(f"quota {key} must be greater than 0")
    if value == float("inf"):
        raise InvalidRequest(f"quota {key} must be a number")
    if key in WHOLE_NUMBERS and (value != int(value) or value >= _WHOLE_END):
        raise InvalidRequest(f"quota {key} must be a whole number below 2^63, not {value}")

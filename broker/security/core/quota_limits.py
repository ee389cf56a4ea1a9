"""Quotas: what is limited of whom, and how long each who shares a limit has to wait.

*Limits.* An entity names a user, a client id, both, or an address; a name that is None stands for
all that have no entry of their own. For a client the first of these that has the limit counts:

    user and client id, user and any client id, user,
    any user and client id, any user and any client id, any user,
    client id, any client id

Who shares a limit: all connections of the user, of the client id, or of both, as the entity has
them.

*Buckets.* What is allowed per second comes into a bucket, up to what comes in a window; use takes
it out, at once and whole, so the bucket may be in debt. While it is not, nobody waits. While it is,
each connection waits for what it used itself, at its share of the rate: the rate divided by the
number of connections that use it. So one that asks for much waits longer than one that asks for
little, and nobody waits for others' use. As shares are estimates, waits are longer the deeper the
debt is. In the long run nothing exceeds the rate; beyond it go a window's worth and one request of
each connection. Kafka measures rates in windows and lets everybody wait for the whole excess; the
totals are the same.

*A bounded number of buckets*, whatever clients call themselves. One that is as full as a new one is
forgotten when room is needed, which changes nothing. If there is no room even so, further owners
share one bucket for each rate: a client that names itself anew with each connection gains nothing.

Sources: KIP-13, KIP-55, KIP-257, KIP-546, KIP-612.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.errors import InvalidRequest
from client.ids import ConnectionId

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

Entity = tuple[tuple[str, str | None], ...]
"""Sorted pairs of a type and a name; None: all that have no entry of their own."""
Owner = tuple[str | None, str | None]
"""Whose requests share a limit: user and client id, or an address and nothing."""
Limits = Mapping[Entity, Mapping[str, float]]

_WHOLE_END: Final = 2.0**63
_SWEEP_INTERVAL_S: Final = 1.0
_PRUNE_INTERVAL_S: Final = 1.0


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


class QuotaTable:
    """By what is limited, and whose."""

    def __init__(self, owners_max: int, window_s: float) -> None:
        self._owners_max = owners_max
        self._window_s = window_s
        self._buckets: dict[tuple[QuotaKey, Owner], FairBucket] = {}
        self._shared: dict[tuple[QuotaKey, float], FairBucket] = {}
        self._swept_s = -math.inf

    def __len__(self) -> int:
        return len(self._buckets) + len(self._shared)

    def bucket(self, key: QuotaKey, limit: Limit, now_s: float) -> FairBucket:
        """Return the bucket of a limit's owner, made if need be."""
        at = key, limit.owner
        found = self._buckets.get(at)
        if found is None:
            if len(self._buckets) >= self._owners_max:
                self._sweep(now_s)
            if len(self._buckets) >= self._owners_max:
                return self._common(key, limit, now_s)
            found = self._buckets[at] = FairBucket(limit.rate, self._window_s, now_s)
        elif found.rate != limit.rate:
            found.set_rate(limit.rate, now_s)
        return found

    def _common(self, key: QuotaKey, limit: Limit, now_s: float) -> FairBucket:
        at = key, limit.rate
        found = self._shared.get(at)
        if found is None:
            found = self._shared[at] = FairBucket(limit.rate, self._window_s, now_s)
        return found

    def _sweep(self, now_s: float) -> None:
        if now_s < self._swept_s + _SWEEP_INTERVAL_S:
            return
        self._swept_s = now_s
        for at in [at for at, one in self._buckets.items() if one.is_untouched(now_s)]:
            del self._buckets[at]
        for shared in [at for at, one in self._shared.items() if one.is_untouched(now_s)]:
            del self._shared[shared]


class _Member:
    """One connection."""

    __slots__ = ("owed", "until_s")

    def __init__(self, now_s: float) -> None:
        self.owed = 0.0
        """Used, and not waited for yet."""
        self.until_s = now_s
        """When it may go on."""


class FairBucket:
    """Amounts are of whatever is limited, times in seconds."""

    def __init__(self, rate: float, window_s: float, now_s: float) -> None:
        self.rate = rate
        self._window_s = window_s
        self._balance = rate * window_s
        self._at_s = now_s
        self._members: dict[ConnectionId, _Member] = {}
        self._prune_s = now_s + _PRUNE_INTERVAL_S

    def set_rate(self, rate: float, now_s: float) -> None:
        """The limit is another one from now on."""
        self._refill(now_s)
        self.rate = rate
        self._balance = min(self._balance, rate * self._window_s)

    def is_in_debt(self, now_s: float) -> bool:
        """Say whether more was used than has come in."""
        self._refill(now_s)
        return self._balance < 0

    def is_untouched(self, now_s: float) -> bool:
        """Say whether it is as a new one would be."""
        self._refill(now_s)
        self._prune(now_s)
        return not self._members and self._balance >= self.rate * self._window_s

    def use(self, connection: ConnectionId, amount: float, now_s: float) -> None:
        """Take out what a connection has used."""
        self._refill(now_s)
        self._balance -= amount
        self._member(connection, now_s).owed += amount

    def take(self, amount: float, now_s: float) -> bool:
        """Take an amount out if it is there; say whether it was."""
        self._refill(now_s)
        if self._balance < amount:
            return False
        self._balance -= amount
        return True

    def wait_s(self, connection: ConnectionId, now_s: float) -> float:
        """Return how long a connection has to wait from now on, for all that it has used."""
        self._refill(now_s)
        if now_s >= self._prune_s:
            self._prune(now_s)
        member = self._member(connection, now_s)
        owed, member.owed = member.owed, 0.0
        debt = -self._balance
        if debt > 0:
            fair_s = owed * len(self._members) / self.rate
            deeper_s = fair_s * (1 + debt / (self.rate * self._window_s))
            own_s = min(deeper_s, max(fair_s, debt / self.rate))
            member.until_s = max(member.until_s, now_s) + own_s
        return max(0.0, member.until_s - now_s)

    def _member(self, connection: ConnectionId, now_s: float) -> _Member:
        member = self._members.get(connection)
        if member is None:
            member = self._members[connection] = _Member(now_s)
        return member

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            came = (now_s - self._at_s) * self.rate
            self._balance = min(self._balance + came, self.rate * self._window_s)
            self._at_s = now_s

    def _prune(self, now_s: float) -> None:
        """Forget connections that have used nothing for a window."""
        self._prune_s = now_s + _PRUNE_INTERVAL_S
        gone = [
            connection
            for connection, member in self._members.items()
            if member.until_s + self._window_s < now_s and not member.owed
        ]
        for connection in gone:
            del self._members[connection]

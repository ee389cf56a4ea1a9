"""Asks a cluster about users, access control lists and quotas, and changes them, by Kafka's APIs.

One blocking connection to the first broker that answers. Results are plain values; an error code of
the broker becomes a `SecurityRefused` with its text.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from client.errors import QuireError
from client.pubsub.addresses import parse
from client.pubsub.brokers import Brokers
from client.pubsub.errors import BrokerUnreachable
from client.spark.brokers.kafka_link import KafkaLink, LinkBroken
from client.wire.kafka.apis import ApiKey
from ops.security.acl_entries import Entry, Filter

SCRAM: Final[Mapping[str, tuple[int, str]]] = {
    "SCRAM-SHA-256": (1, "sha256"),
    "SCRAM-SHA-512": (2, "sha512"),
}
"""Mechanism -> Kafka's number of it, and its hash."""
ITERATIONS: Final = 8_192
"""Brokers answer for names that nobody has as if they had been made here."""
SALT_BYTES: Final = 24
_TIMEOUT_S: Final = 15.0
_METADATA_VERSION: Final = 4
_NO_USER: Final = 91
"""RESOURCE_NOT_FOUND"""

_TEXTS: Final[Mapping[int, str]] = {
    31: "you have no right to do that to the cluster",
    54: "authorization is off: set security.authorization",
}
"""What errors mean whose answers have no text."""

EntityParts = Sequence[tuple[str, str | None]]
"""Pairs of a type and a name; None: the default."""


class SecurityRefused(QuireError):
    """A broker does not do what was asked; the text says why. Nothing of it has happened."""


class User(NamedTuple):
    """A user and how passwords of it can be checked."""

    name: str
    mechanisms: Mapping[str, int]
    """Mechanism -> iterations."""


class SecurityAdmin:
    """A connection; use it in a `with`. All methods raise BrokerUnreachable if it breaks."""

    def __init__(self, brokers: Brokers) -> None:
        """Raises BrokerUnreachable, ConfigError (a file, or the login)."""
        self.brokers = brokers
        problems: list[str] = []
        for host, port in parse(brokers.bootstrap_servers):
            try:
                self._link = KafkaLink(host, port, _TIMEOUT_S, brokers.security)
                return
            except LinkBroken as error:
                problems.append(str(error))
        raise BrokerUnreachable("; ".join(problems))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._link.close()

    @property
    def me(self) -> str:
        """Who we are to the brokers, as far as the settings tell."""
        return self.brokers.security.username or "ANONYMOUS"

    def broker_ids(self) -> frozenset[int]:
        """Return the brokers that this one knows."""
        answer = self._ask(
            ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False}, _METADATA_VERSION
        )
        return frozenset(row.node_id for row in answer.brokers)

    # --- users

    def users(self, names: Iterable[str] | None = None) -> list[User]:
        """Return all users, or those of some names that exist."""
        asked = None if names is None else [{"name": name} for name in names]
        answer = self._ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": asked}, 0)
        _check(answer.error_code, answer.error_message)
        by_number = {number: name for name, (number, _) in SCRAM.items()}
        found = []
        for row in answer.results:
            if row.error_code == _NO_USER:
                continue
            _check(row.error_code, row.error_message)
            infos = {by_number[info.mechanism]: info.iterations for info in row.credential_infos}
            found.append(User(row.user, infos))
        return sorted(found)

    def set_password(self, user: str, password: str, mechanisms: Iterable[str]) -> None:
        """Make a user, or give it another password. Raises SecurityRefused."""
        rows = []
        for mechanism in mechanisms:
            number, name = SCRAM[mechanism]
            salt = secrets.token_bytes(SALT_BYTES)
            salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
            rows.append(
                {
                    "name": user, "mechanism": number, "iterations": ITERATIONS, "salt": salt,
                    "salted_password": salted,
                }
            )  # fmt: skip
        self._alter_users([], rows)

    def delete_user(self, user: str) -> None:
        """Remove a user with all its credentials. Raises SecurityRefused."""
        there = self.users([user])
        if not there:
            raise SecurityRefused(f"there is no user {user!r}")
        rows = [{"name": user, "mechanism": SCRAM[one][0]} for one in there[0].mechanisms]
        self._alter_users(rows, [])

    def _alter_users(self, deletions: Sequence[Any], upsertions: Sequence[Any]) -> None:
        fields = {"deletions": deletions, "upsertions": upsertions}
        answer = self._ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, fields, 0)
        for row in answer.results:
            _check(row.error_code, row.error_message)

    # --- access control lists

    def entries(self, wanted: Filter) -> list[Entry]:
        """Return the entries that a filter means. Raises SecurityRefused."""
        answer = self._ask(ApiKey.DESCRIBE_ACLS, _filter_fields(wanted), 2)
        _check(answer.error_code, answer.error_message)
        return sorted(
            Entry(
                one.resource_type, one.resource_name, one.pattern_type, acl.principal, acl.host,
                acl.operation, acl.permission_type,
            )
            for one in answer.resources
            for acl in one.acls
        )  # fmt: skip

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries. Raises SecurityRefused; those before the one it names may be there."""
        rows = [
            {
                "resource_type": one.resource_type, "resource_name": one.name,
                "resource_pattern_type": one.pattern, "principal": one.principal,
                "host": one.host, "operation": one.operation, "permission_type": one.permission,
            }
            for one in entries
        ]  # fmt: skip
        answer = self._ask(ApiKey.CREATE_ACLS, {"creations": rows}, 2)
        for row in answer.results:
            _check(row.error_code, row.error_message)

    def remove(self, entries: Iterable[Entry]) -> int:
        """Remove entries; return how many there were. Raises SecurityRefused."""
        filters = [_filter_fields(Filter.only(one)) for one in entries]
        answer = self._ask(ApiKey.DELETE_ACLS, {"filters": filters}, 2)
        for row in answer.filter_results:
            _check(row.error_code, row.error_message)
        return sum(len(row.matching_acls) for row in answer.filter_results)

    # --- quotas

    def quotas(self) -> list[tuple[EntityParts, Mapping[str, float]]]:
        """Return all entities that have quotas. Raises SecurityRefused."""
        fields = {"components": [], "strict": False}
        answer = self._ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, fields, 1)
        _check(answer.error_code, answer.error_message)
        return [
            (
                [(part.entity_type, part.entity_name) for part in entry.entity],
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    def set_quotas(self, entity: EntityParts, changes: Mapping[str, float | None]) -> None:
        """Change quotas of one entity; None takes one away. Raises SecurityRefused."""
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [
                {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                for key, value in changes.items()
            ],
        }
        fields = {"entries": [entry], "validate_only": False}
        answer = self._ask(ApiKey.ALTER_CLIENT_QUOTAS, fields, 1)
        for row in answer.entries:
            _check(row.error_code, row.error_message)

    def _ask(self, api: ApiKey, fields: dict[str, Any], version: int) -> Any:
        if not self._link.offers(api):
            raise SecurityRefused(f"the broker at {self._link.address} has no {api.name.lower()}")
        try:
            return self._link.ask(api, fields, _TIMEOUT_S, version=version)
        except LinkBroken as error:
            raise BrokerUnreachable(str(error)) from error


def _filter_fields(wanted: Filter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type, "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern, "principal_filter": wanted.principal,
        "host_filter": wanted.host, "operation": wanted.operation,
        "permission_type": wanted.permission,
    }  # fmt: skip


def _check(code: int, message: str | None) -> None:
    if code:
        raise SecurityRefused(message or _TEXTS.get(code) or f"the broker says error {int(code)}")

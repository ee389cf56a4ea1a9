"""Entries of access control lists as the command line has them: words for Kafka's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

TYPES: Final[Mapping[int, str]] = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id"}
PATTERNS: Final[Mapping[int, str]] = {3: "literal", 4: "prefixed"}
OPERATIONS: Final[Mapping[int, str]] = {
    2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    9: "cluster-action", 10: "describe-configs", 11: "alter-configs", 12: "idempotent-write",
}  # fmt: skip
PERMISSIONS: Final[Mapping[int, str]] = {2: "deny", 3: "allow"}
CLUSTER: Final = "kafka-cluster"
"""Kafka's name of the one resource of type cluster."""
ANY: Final = 1
USER: Final = "User:"


class Entry(NamedTuple):
    """One of them, in Kafka's numbers."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def words(self) -> tuple[str, ...]:
        """Return principal, permission, operation, resource type, name, pattern and host."""
        return (
            self.principal,
            PERMISSIONS.get(self.permission, str(self.permission)),
            OPERATIONS.get(self.operation, str(self.operation)),
            TYPES.get(self.resource_type, str(self.resource_type)),
            self.name,
            PATTERNS.get(self.pattern, str(self.pattern)),
            self.host,
        )


class Filter(NamedTuple):
    """Which entries are meant; None and ANY: any."""

    resource_type: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @classmethod
    def only(cls, entry: Entry) -> Filter:
        """Return what means one entry and no other."""
        return cls(*entry)


def number(table: Mapping[int, str], word: str) -> int:
    """Return Kafka's number of a word of a table. Raises KeyError."""
    return next(key for key, known in table.items() if known == word.lower())


def may_alter(entries: list[Entry], principal: str) -> bool:
    """Say whether entries let somebody change entries."""
    allowing, denying = (
        any(
            one.permission == permission
            and one.principal in (principal, f"{USER}*")
            and one.resource_type == number(TYPES, "cluster")
            and one.operation in (number(OPERATIONS, "all"), number(OPERATIONS, "alter"))
            for one in entries
        )
        for permission in (number(PERMISSIONS, "allow"), number(PERMISSIONS, "deny"))
    )
    return allowing and not denying

"""Roles: bundles of entries of access control lists for what people usually need.

    reader        read a topic, as members of a group
    writer        write a topic, by transactional ids that begin with a word, if one is given
    application   everything with topics, groups and transactional ids whose names begin with a word

A role is not stored: it expands to entries, and entries that make up a role are shown as it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ops.security.acl_entries import OPERATIONS, PATTERNS, PERMISSIONS, TYPES, Entry, number

READER: Final = "reader"
WRITER: Final = "writer"
APPLICATION: Final = "application"
ROLES: Final = (READER, WRITER, APPLICATION)


class Role(NamedTuple):
    """A role of somebody."""

    principal: str
    role: str
    name: str
    """Of the topic; of an application, what names begin with."""
    group: str = ""
    """What a reader reads as."""
    is_prefix: bool = False
    """Whether names only begin with these words."""

    @property
    def text(self) -> str:
        """Say what it is."""
        if self.role == APPLICATION:
            return f"application with names that begin with {self.name!r}"
        what = "topics that begin with" if self.is_prefix else "topic"
        as_group = f", as group {self.group!r}" if self.group else ""
        return f"{self.role} of {what} {self.name!r}{as_group}"


def entries_of(role: Role) -> list[Entry]:
    """Return the entries that a role consists of."""
    pattern = "prefixed" if role.is_prefix or role.role == APPLICATION else "literal"
    rows: list[tuple[str, str, str]] = []
    if role.role == READER:
        rows = [("topic", role.name, "read"), ("topic", role.name, "describe")]
        rows += [("group", role.group, "read")] if role.group else []
    elif role.role == WRITER:
        rows = [("topic", role.name, one) for one in ("write", "describe")]
    else:
        topic = ("read", "write", "create", "describe", "describe-configs")
        rows = [("topic", role.name, one) for one in topic]
        rows += [("group", role.name, one) for one in ("read", "describe")]
        rows += [("transactional-id", role.name, one) for one in ("write", "describe")]
    return [
        Entry(
            number(TYPES, kind), name, number(PATTERNS, pattern), role.principal, "*",
            number(OPERATIONS, operation), number(PERMISSIONS, "allow"),
        )
        for kind, name, operation in rows
    ]  # fmt: skip


def recognized(entries: Iterable[Entry]) -> tuple[list[Role], list[Entry]]:
    """Return the roles that entries make up, and the entries that are left over.

    The largest role comes first; an entry may belong to several, as one group may read many topics.
    """
    there = set(entries)
    used: set[Entry] = set()
    roles: list[Role] = []
    for role in _possible(there):
        parts = set(entries_of(role))
        if parts <= there and not parts <= used:
            roles.append(role)
            used |= parts
    return sorted(roles), sorted(there - used)


def _possible(entries: Iterable[Entry]) -> Sequence[Role]:
    """Return the roles that might be there, by what entries name, large ones first."""
    found: dict[Role, None] = {}
    groups: dict[tuple[str, int], list[str]] = {}
    topics: dict[tuple[str, str, int], None] = {}
    for one in sorted(entries):
        if one.resource_type == number(TYPES, "group"):
            groups.setdefault((one.principal, one.pattern), []).append(one.name)
        elif one.resource_type == number(TYPES, "topic"):
            topics[one.principal, one.name, one.pattern] = None
    for principal, name, pattern in topics:
        if pattern == number(PATTERNS, "prefixed"):
            found[Role(principal, APPLICATION, name, is_prefix=True)] = None
    for principal, name, pattern in topics:
        is_prefix = pattern == number(PATTERNS, "prefixed")
        for group in groups.get((principal, pattern), ()):
            found[Role(principal, READER, name, group, is_prefix)] = None
        found[Role(principal, READER, name, "", is_prefix)] = None
        found[Role(principal, WRITER, name, "", is_prefix)] = None
    return list(found)

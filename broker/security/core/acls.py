"""Access control lists: who may do what to which topics, groups, ids and the cluster.

An entry allows or denies one operation (or all) to one principal (or all) from one host (or all),
on the resources of one type whose name it matches: one name, all names (`*`), or all names with a
prefix. What is denied is denied, whatever else is allowed; what is not allowed is denied, unless
the resource has no entries at all and the settings say that everybody may use such ones. Some
operations imply others: whoever may read, write, delete or alter something may see it.

Numbers and meanings are Kafka's (KIP-11, KIP-290). All of it is a pure function of the entries.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""Of the one resource of type CLUSTER."""
EVERYTHING: Final = "*"
"""As a name: every resource of the type; as a host: every one."""
ANONYMOUS: Final = "ANONYMOUS"
"""Who shows neither certificate nor password, by Kafka's name."""
USER: Final = "User:"
"""What principals begin with: their type."""
_NOTED_CHARS_MAX: Final = 2_000
"""Of user, address and name together: a decision about more is made anew each time."""
NOTED_BYTES_MAX: Final = 5_000_000
"""Of all decisions that are remembered. Clients choose the names, so bytes are counted."""
_NOTE_BYTES: Final = 500
"""Of one decision beside its texts: entry, key, and what strings take when they are empty."""
_CHAR_BYTES_MAX: Final = 4
"""Of each character of a text that has an unusual one."""


class ResourceType(enum.IntEnum):
    """What an entry is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(enum.IntEnum):
    """What somebody wants to do."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(enum.IntEnum):
    """Whether an entry gives or takes."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class PatternType(enum.IntEnum):
    """How an entry names resources; ANY and MATCH are for filters alone."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


IMPLIED_BY: Final[Mapping[Operation, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operation -> those that imply it, where they are allowed."""


_OF_EVERYTHING: Final = (
    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip
SUPPORTED: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        *_OF_EVERYTHING,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, *_OF_EVERYTHING),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE,
        *_OF_EVERYTHING,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}  # fmt: skip
"""Type -> what can be done to its resources, as Kafka lists it (AclEntry.supportedOperations)."""


class Acl(NamedTuple):
    """One entry."""

    resource_type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    """`User:anna`, or `User:*` for everybody."""
    host: str
    operation: Operation
    permission: Permission

    @property
    def text(self) -> str:
        """Say it in words."""
        kind, pattern = self.resource_type.name.lower(), self.pattern.name.lower()
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} {kind}"
            f" {self.name!r} ({pattern}) from {self.host}"
        )

    @property
    def is_about_everything(self) -> bool:
        """Whether it is about all resources of its type."""
        return self.pattern is PatternType.LITERAL and self.name == EVERYTHING

    def covers(self, name: str) -> bool:
        """Say whether it is about a resource of that name."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERYTHING)


class AclFilter(NamedTuple):
    """Which entries somebody means; None and ANY: whichever."""

    resource_type: ResourceType
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Say whether an entry is meant."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern is PatternType.MATCH:
            return self.name is None or acl.covers(self.name)
        return self.name in (None, acl.name) and self.pattern in (PatternType.ANY, acl.pattern)


class Acls:
    """All entries, found by what they are about. Changing some takes no look at the others."""

    def __init__(self, entries: Iterable[Acl] = ()) -> None:
        """Hold entries that stay together: a later `put` of the empty source replaces them."""
        self.count = 0
        self._sources: dict[str, tuple[Acl, ...]] = {}
        self._literal: dict[tuple[ResourceType, str], dict[str, list[Acl]]] = {}
        self._prefixed: dict[tuple[ResourceType, str], dict[str, list[Acl]]] = {}
        self._by_type: dict[ResourceType, dict[str, list[Acl]]] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """How many names of that length have entries."""
        self.put("", entries)

    def put(self, source: str, entries: Iterable[Acl]) -> None:
        """Take these instead of what came from a source before."""
        after = tuple(entries)
        for acl in self._sources.pop(source, ()):
            self._drop(source, acl)
        if after:
            self._sources[source] = after
        for acl in after:
            self._add(source, acl)

    def about(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """Yield the entries about one resource."""
        yield from _flat(self._literal.get((kind, name)))
        if name != EVERYTHING:
            yield from _flat(self._literal.get((kind, EVERYTHING)))
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                yield from _flat(self._prefixed.get((kind, name[:length])))

    def of_type(self, kind: ResourceType) -> Iterable[Acl]:
        """Return all entries about resources of a type."""
        return list(_flat(self._by_type.get(kind)))

    def _add(self, source: str, acl: Acl) -> None:
        self.count += 1
        self._by_type.setdefault(acl.resource_type, {}).setdefault(source, []).append(acl)
        key = acl.resource_type, acl.name
        if acl.pattern is not PatternType.PREFIXED:
            self._literal.setdefault(key, {}).setdefault(source, []).append(acl)
            return
        if key not in self._prefixed:
            lengths = self._prefix_lengths.setdefault(acl.resource_type, {})
            lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        self._prefixed.setdefault(key, {}).setdefault(source, []).append(acl)

    def _drop(self, source: str, acl: Acl) -> None:
        self.count -= 1
        self._by_type[acl.resource_type].pop(source, None)
        key = acl.resource_type, acl.name
        if acl.pattern is not PatternType.PREFIXED:
            _without(self._literal, key, source)
        elif _without(self._prefixed, key, source):
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]


def _flat(sources: Mapping[str, list[Acl]] | None) -> Iterator[Acl]:
    for entries in (sources or {}).values():
        yield from entries


def _without(
    index: dict[tuple[ResourceType, str], dict[str, list[Acl]]],
    key: tuple[ResourceType, str],
    source: str,
) -> bool:
    """Forget a source's entries; say whether they were the last about that name."""
    sources = index.get(key)
    if sources is None:
        return False
    sources.pop(source, None)
    if not sources:
        del index[key]
    return not sources


class Authorizer:
    """Decides by the entries of the moment."""

    def __init__(self, super_users: Collection[str], *, allow_if_none: bool) -> None:
        """`super_users`: principals that may do everything. `allow_if_none`: whether everybody may
        use what has no entries."""
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self._acls = Acls()
        self._decided: dict[tuple[str, str, Operation, ResourceType, str | None], bool] = {}
        """By the name of the resource; None: of any."""
        self._noted_bytes = 0

    def replace(self, acls: Acls) -> None:
        """Decide by other entries from now on."""
        self._acls = acls
        self._forget()

    def is_allowed(
        self, user: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Decide whether a user may do something to one resource."""
        key = user, host, operation, kind, name
        decided = self._decided.get(key)
        if decided is None:
            decided = self._decide(USER + user, host, operation, kind, name)
            self._note(key, decided)
        return decided

    def is_allowed_somewhere(
        self, user: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Decide whether there is any name that a resource could have, to which the user may do
        it."""
        key = user, host, operation, kind, None
        decided = self._decided.get(key)
        if decided is None:
            decided = self._decide_somewhere(USER + user, host, operation, kind)
            self._note(key, decided)
        return decided

    def is_super(self, user: str) -> bool:
        """Say whether a user may do everything, whatever the entries are."""
        return USER + user in self._super_users

    def _note(
        self, key: tuple[str, str, Operation, ResourceType, str | None], decided: bool
    ) -> None:
        user, host, _, _, name = key
        texts = user, host, name or ""
        if sum(map(len, texts)) > _NOTED_CHARS_MAX:
            return
        size = _NOTE_BYTES + sum(map(_text_bytes, texts))
        if self._noted_bytes + size > NOTED_BYTES_MAX:
            self._forget()
        self._noted_bytes += size
        self._decided[key] = decided

    def _forget(self) -> None:
        self._decided.clear()
        self._noted_bytes = 0

    def _decide_somewhere(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        if principal in self._super_users:
            return True
        entries = self._acls.of_type(kind)
        mine = [acl for acl in entries if _concerns(acl, principal, host)]
        denied = [acl for acl in mine if _is_denial(acl, operation)]
        if any(acl.is_about_everything for acl in denied):
            return False
        if self._allow_if_none and not any(acl.is_about_everything for acl in entries):
            return True
        for acl in mine:
            if not _is_allowance(acl, operation):
                continue
            if acl.is_about_everything:
                return True
            blocking = (
                denied
                if acl.pattern is PatternType.LITERAL
                else [one for one in denied if one.pattern is PatternType.PREFIXED]
            )
            if not any(one.covers(acl.name) for one in blocking):
                return True
        return False

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        is_allowed, count = False, 0
        for acl in self._acls.about(kind, name):
            count += 1
            if not _concerns(acl, principal, host):
                continue
            if _is_denial(acl, operation):
                return False
            is_allowed = is_allowed or _is_allowance(acl, operation)
        return is_allowed or (not count and self._allow_if_none)


def _text_bytes(text: str) -> int:
    """Return what a text takes at most."""
    return len(text) if text.isascii() else _CHAR_BYTES_MAX * len(text)


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, USER + EVERYTHING) and acl.host in (host, EVERYTHING)


def _is_denial(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)


def _is_allowance(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.ALLOW and (
        acl.operation in (operation, Operation.ALL)
        or acl.operation in IMPLIED_BY.get(operation, ())
    )

"""Entries of access control lists and filters for them, as Kafka's requests have them."""

from __future__ import annotations

import enum
from typing import Any, Final, TypeVar

from broker.errors import InvalidRequest, SecurityDisabled
from broker.front.services import Services
from broker.security.core.acls import (
    CLUSTER_NAME,
    USER,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_NAME_CHARS_MAX: Final = 1_000

N = TypeVar("N", bound=enum.IntEnum)


def require_authorization(services: Services) -> None:
    """Raise SecurityDisabled if there are no access control lists here."""
    if not services.rights.is_on:
        raise SecurityDisabled("authorization is off: set security.authorization")


def acl_of(row: Any) -> Acl:
    """Read an entry that shall be added. Raises InvalidRequest."""
    acl = Acl(
        _number(ResourceType, row.resource_type),
        row.resource_name,
        _number(PatternType, row.resource_pattern_type),
        row.principal,
        row.host,
        _number(Operation, row.operation),
        _number(Permission, row.permission_type),
    )
    if ResourceType.ANY in (acl.resource_type,) or acl.pattern in (
        PatternType.ANY,
        PatternType.MATCH,
    ):
        raise InvalidRequest("an entry needs exactly one resource type and pattern type")
    if acl.operation is Operation.ANY or acl.permission is Permission.ANY:
        raise InvalidRequest("an entry needs exactly one operation and one permission")
    if not acl.name or not acl.host or max(map(len, (acl.name, acl.host))) > _NAME_CHARS_MAX:
        raise InvalidRequest(f"names and hosts must have 1 to {_NAME_CHARS_MAX} characters")
    if not acl.principal.startswith(USER) or not len(USER) < len(acl.principal) <= _NAME_CHARS_MAX:
        raise InvalidRequest(f"the principal {acl.principal[:249]!r} is not of the form User:NAME")
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequest(f"the cluster's name is {CLUSTER_NAME}, not {acl.name[:249]!r}")
    return acl


def acl_filter(row: Any) -> AclFilter:
    """Read a filter. Raises InvalidRequest."""
    return AclFilter(
        _number(ResourceType, row.resource_type_filter),
        row.resource_name_filter,
        _number(PatternType, row.pattern_type_filter),
        row.principal_filter,
        row.host_filter,
        _number(Operation, row.operation),
        _number(Permission, row.permission_type),
    )


def _number(kind: type[N], value: int) -> N:
    try:
        return kind(value)
    except ValueError:
        raise InvalidRequest(f"{kind.__name__} {value} is not supported") from None

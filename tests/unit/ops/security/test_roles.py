"""Roles expand to entries, and entries are shown as roles again."""

from __future__ import annotations

import pytest

from ops.security.acl_entries import OPERATIONS, PERMISSIONS, TYPES, Entry, may_alter, number
from ops.security.roles import APPLICATION, READER, WRITER, Role, entries_of, recognized

ROLES = [
    Role("User:a", READER, "orders", "billing"),
    Role("User:a", READER, "o", "b", is_prefix=True),
    Role("User:a", WRITER, "orders"),
    Role("User:a", APPLICATION, "shop-", is_prefix=True),
]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.text)
def test_what_a_role_expands_to_is_shown_as_it(role: Role) -> None:
    assert recognized(entries_of(role)) == ([role], [])


def test_roles_that_share_entries_are_shown_both() -> None:
    both = [Role("User:a", READER, topic, "g") for topic in ("t", "u")]
    entries = [entry for role in both for entry in entries_of(role)]
    assert recognized(entries) == (both, [])


def test_what_is_no_role_is_left_over() -> None:
    role = Role("User:a", WRITER, "orders")
    write, describe = entries_of(role)
    alone = write._replace(name="other")
    denied = describe._replace(permission=number(PERMISSIONS, "deny"))
    from_one_host = describe._replace(host="10.0.0.1", name="third")
    roles, rest = recognized([write, describe, alone, denied, from_one_host])
    assert roles == [role]
    assert set(rest) == {alone, denied, from_one_host}
    assert recognized([write]) == ([], [write])


def test_another_principal_has_another_role() -> None:
    write, _ = entries_of(Role("User:a", WRITER, "orders"))
    _, describe = entries_of(Role("User:b", WRITER, "orders"))
    assert recognized([write, describe])[0] == []


def altering(**more: object) -> Entry:
    cluster, alter, allow = (
        number(TYPES, "cluster"), number(OPERATIONS, "alter"), number(PERMISSIONS, "allow"),
    )  # fmt: skip
    made = Entry(cluster, "kafka-cluster", 3, "User:a", "*", alter, allow)
    return made._replace(**more)  # type: ignore[arg-type]


def test_who_may_change_entries() -> None:
    deny, every = number(PERMISSIONS, "deny"), number(OPERATIONS, "all")
    assert may_alter([altering()], "User:a")
    assert may_alter([altering(principal="User:*", operation=every)], "User:a")
    assert not may_alter([altering(principal="User:b")], "User:a")
    assert not may_alter([altering(operation=number(OPERATIONS, "describe"))], "User:a")
    assert not may_alter([altering(), altering(principal="User:*", permission=deny)], "User:a")
    assert not may_alter([], "User:a")

"""Access control lists, against a model that goes through all entries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.security.core.acls import (
    NOTED_BYTES_MAX,
    Acl,
    AclFilter,
    Acls,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL


def acl(
    operation: Operation = READ,
    permission: Permission = ALLOW,
    *,
    kind: ResourceType = TOPIC,
    name: str = "t",
    pattern: PatternType = LITERAL,
    principal: str = "User:anna",
    host: str = "*",
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, allow_if_none: bool = False) -> Authorizer:
    made = Authorizer(["User:root"], allow_if_none=allow_if_none)
    made.replace(Acls(acls))
    return made


def may(
    made: Authorizer, operation: Operation = READ, name: str = "t", *, user: str = "anna",
    host: str = "h", kind: ResourceType = TOPIC,
) -> bool:  # fmt: skip
    return made.is_allowed(user, host, operation, kind, name)


def test_what_is_not_allowed_is_denied_to_all_but_super_users() -> None:
    made = authorizer(acl())
    assert may(made)
    assert not may(made, WRITE)
    assert not may(made, name="other")
    assert not may(made, kind=GROUP)
    assert not may(made, user="bert")
    assert may(made, WRITE, "other", user="root")


@pytest.mark.parametrize(
    "denial",
    [
        acl(READ, DENY),
        acl(ALL, DENY),
        acl(READ, DENY, principal="User:*"),
        acl(READ, DENY, name="*"),
        acl(READ, DENY, name="", pattern=PREFIXED),
        acl(READ, DENY, host="h"),
    ],
)
def test_what_is_denied_is_denied_whatever_is_allowed(denial: Acl) -> None:
    assert not may(authorizer(acl(ALL), acl(name="*"), denial))


def test_names() -> None:
    made = authorizer(acl(name="a."), acl(name="b.", pattern=PREFIXED))
    assert may(made, name="a.")
    assert not may(made, name="a.x")
    assert may(made, name="b.")
    assert may(made, name="b.x")
    assert not may(made, name="b")
    assert may(authorizer(acl(name="*")), name="anything")


def test_hosts() -> None:
    made = authorizer(acl(host="10.0.0.1"))
    assert may(made, host="10.0.0.1")
    assert not may(made, host="10.0.0.10")


@pytest.mark.parametrize("stronger", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL])
def test_who_may_do_something_to_it_may_see_it(stronger: Operation) -> None:
    assert may(authorizer(acl(stronger)), DESCRIBE)
    assert not may(authorizer(acl(Operation.CREATE)), DESCRIBE)
    assert may(authorizer(acl(Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    assert not may(authorizer(acl(READ)), Operation.DESCRIBE_CONFIGS)


def test_a_denial_implies_nothing() -> None:
    made = authorizer(acl(DESCRIBE), acl(READ, DENY))
    assert may(made, DESCRIBE)


def test_what_has_no_entries_may_be_everybodys() -> None:
    made = authorizer(acl(name="t"), allow_if_none=True)
    assert may(made, name="other", user="bert")
    assert not may(made, name="t", user="bert")


def test_a_change_counts_at_once() -> None:
    made = authorizer(acl())
    assert may(made)
    made.replace(Acls([acl(WRITE)]))
    assert not may(made)
    made.replace(Acls())
    assert not may(made, WRITE)


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
ENTRIES = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:anna", "User:bert", "User:*"]),
    st.sampled_from(["h", "i", "*"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    st.sampled_from([ALLOW, DENY]),
)


def model(
    acls: Sequence[Acl], user: str, host: str, operation: Operation, kind: ResourceType,
    name: str, *, allow_if_none: bool,
) -> bool:  # fmt: skip
    """Decide as the documentation says it, entry by entry."""
    about = [
        one for one in acls
        if one.resource_type == kind
        and (
            name.startswith(one.name) if one.pattern == PREFIXED
            else one.name in (name, "*")
        )
    ]  # fmt: skip
    mine = [
        one for one in about
        if one.principal in (f"User:{user}", "User:*") and one.host in (host, "*")
    ]  # fmt: skip
    if any(one.permission == DENY and one.operation in (operation, ALL) for one in mine):
        return False
    enough = {operation, ALL} | ({READ, WRITE} if operation == DESCRIBE else set())
    if any(one.permission == ALLOW and one.operation in enough for one in mine):
        return True
    return allow_if_none and not about


@settings(max_examples=500)
@given(
    st.lists(ENTRIES, max_size=8), st.sampled_from(["anna", "bert", "carl"]),
    st.sampled_from(["h", "i", "j"]), st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from([TOPIC, GROUP]), st.sampled_from(["a", "ab", "abcd", "b", "c", "*"]),
    st.booleans(),
)  # fmt: skip
def test_it_decides_as_the_model_does(
    acls: list[Acl], user: str, host: str, operation: Operation, kind: ResourceType, name: str,
    allow_if_none: bool,
) -> None:  # fmt: skip
    made = authorizer(*acls, allow_if_none=allow_if_none)
    expected = model(acls, user, host, operation, kind, name, allow_if_none=allow_if_none)
    for _ in range(2):  # decided, and remembered
        assert made.is_allowed(user, host, operation, kind, name) == expected


@settings(max_examples=500)
@given(
    st.lists(ENTRIES, max_size=6), st.sampled_from(["anna", "bert", "carl"]),
    st.sampled_from(["h", "j"]), st.sampled_from([READ, WRITE]), st.booleans(),
)  # fmt: skip
def test_somewhere_means_some_name_that_there_could_be(
    acls: list[Acl], user: str, host: str, operation: Operation, allow_if_none: bool
) -> None:
    """All names that can make a difference are tried: those of entries, and longer ones."""
    made = authorizer(*acls, allow_if_none=allow_if_none)
    named = {one.name for one in acls}
    names = (named - {"*"}) | {f"{name}~" for name in named} | {"~"}
    expected = any(made.is_allowed(user, host, operation, TOPIC, name) for name in names)
    assert made.is_allowed_somewhere(user, host, operation, TOPIC) == expected


def wanted(**fields: object) -> AclFilter:
    anything = AclFilter(
        ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )
    return anything._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_filter", "found"),
    [
        (wanted(), "abcd"),
        (wanted(resource_type=GROUP), "d"),
        (wanted(name="orders"), "ad"),
        (wanted(name="orders", pattern=LITERAL), "ad"),
        (wanted(name="ord", pattern=LITERAL), ""),
        (wanted(name="ord", pattern=PREFIXED), "b"),
        (wanted(pattern=PREFIXED), "b"),
        (wanted(name="orders", pattern=PatternType.MATCH), "abcd"),
        (wanted(name="other", pattern=PatternType.MATCH), "c"),
        (wanted(principal="User:bert"), "d"),
        (wanted(host="h"), "c"),
        (wanted(operation=WRITE), "b"),
        (wanted(permission=DENY), "c"),
        (wanted(permission=DENY, operation=WRITE), ""),
    ],
)
def test_filters(given_filter: AclFilter, found: str) -> None:
    acls = {
        "a": acl(name="orders"),
        "b": acl(WRITE, name="ord", pattern=PREFIXED),
        "c": acl(READ, DENY, name="*", host="h"),
        "d": acl(READ, kind=GROUP, name="orders", principal="User:bert"),
    }
    assert "".join(key for key, one in acls.items() if given_filter.matches(one)) == found


def test_decisions_remembered_are_bounded() -> None:
    made = authorizer(acl(name="", pattern=PREFIXED))
    for number in range(25_000):
        assert may(made, name=f"t{number}")
    assert len(made._decided) <= 10_000


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.lists(ENTRIES, max_size=4)), max_size=8))
def test_entries_that_are_replaced_leave_nothing_behind(
    steps: list[tuple[str, list[Acl]]],
) -> None:
    changed, last = Acls(), {}
    for source, entries in steps:
        changed.put(source, entries)
        last[source] = entries
    left = [one for entries in last.values() for one in entries]
    fresh = Acls(left)
    assert changed.count == len(left)
    for kind in (TOPIC, GROUP):
        assert sorted(changed.of_type(kind)) == sorted(fresh.of_type(kind))
        for name in ("a", "ab", "abc", "abcd", "b", "*"):
            assert sorted(changed.about(kind, name)) == sorted(fresh.about(kind, name))


def test_a_change_looks_at_what_changed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else every entry that is added makes all others be sorted in again."""
    made = Acls()
    for number in range(1_000):
        made.put(f"node {number}", [acl(name=f"t{number}")])
    looked: list[Acl] = []
    add = Acls._add
    monkeypatch.setattr(Acls, "_add", lambda self, *one: (looked.append(one[1]), add(self, *one)))
    made.put("node 7", [acl(WRITE, name="t7")])
    assert looked == [acl(WRITE, name="t7")]
    assert list(made.about(TOPIC, "t7")) == looked


def test_whether_anything_is_allowed_is_remembered() -> None:
    """It takes a look at every entry about the type, and producers ask whenever they begin."""
    made = authorizer(acl(WRITE))
    assert made.is_allowed_somewhere("anna", "h", WRITE, TOPIC)
    made._acls.put("", [acl(WRITE, DENY, name="*")])
    assert made.is_allowed_somewhere("anna", "h", WRITE, TOPIC), "nobody was told of a change"
    made.replace(made._acls)
    assert not made.is_allowed_somewhere("anna", "h", WRITE, TOPIC)


def held_bytes(ask: Callable[[int], object]) -> int:
    """Return what is held after many questions, as Python counts it."""
    tracemalloc.start()
    try:
        for number in range(40_000):
            ask(number)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["", "x" * 249, "x" * 1_900, "\N{GRINNING FACE}" * 1_000])
def test_what_is_remembered_is_bounded_in_bytes(name: str) -> None:
    made = authorizer()
    held = held_bytes(lambda number: may(made, name=f"{number}{name}"))
    assert held <= NOTED_BYTES_MAX


def test_a_long_name_is_not_remembered() -> None:
    made = authorizer(acl(name="", pattern=PREFIXED))
    for _ in range(2):
        assert may(made, name="x" * 32_767)
    assert not made._decided
    assert may(made, name="x" * 1_000)
    assert len(made._decided) == 1

"""The catalogue as the log builds it."""

from __future__ import annotations

import pytest

from ops.schemas.core.catalogue import REFERENCES_MAX, Catalogue, page
from ops.schemas.core.errors import InvalidSchema, RegistryError
from ops.schemas.core.log_records import IdsGiven, SchemaGone, SchemaStored, SubjectDeleted
from ops.schemas.core.schema import Kind, Reference, Schema, Version


def schema(text: str, *references: Reference) -> Schema:
    return Schema(Kind.AVRO, text, references)


def catalogue(*versions: Version) -> Catalogue:
    found = Catalogue()
    for version in versions:
        found.apply(SchemaStored(version))
    return found


def test_versions_are_listed_by_number_and_deleted_ones_when_asked() -> None:
    found = catalogue(
        Version("s", 2, 2, schema("b")),
        Version("s", 1, 1, schema("a"), is_deleted=True),
        Version("t", 1, 1, schema("a")),
    )
    assert found.subjects() == ["s", "t"]
    assert [one.number for one in found.versions("s")] == [2]
    assert [one.number for one in found.versions("s", deleted=True)] == [1, 2]
    assert [(one.subject, one.number) for one in found.with_id(1)] == [("s", 1), ("t", 1)]


def test_a_deleted_subject_is_listed_only_when_asked() -> None:
    found = catalogue(Version("s", 1, 1, schema("a")), Version("s", 2, 2, schema("b")))
    found.apply(SubjectDeleted("s", 2))
    found.apply(SchemaStored(Version("s", 3, 3, schema("c"))))
    assert [one.number for one in found.versions("s")] == [3]
    found.apply(SubjectDeleted("s", 3))
    assert (found.subjects(), found.subjects(deleted=True)) == ([], ["s"])
    assert found.with_id(2), "what was written with it must stay readable"


def test_a_schema_that_is_gone_leaves_no_trace_but_its_id() -> None:
    found = catalogue(Version("s", 1, 1, schema("a")), Version("s", 2, 2, schema("b")))
    found.apply(SchemaGone("s", 2))
    found.apply(SchemaGone("s", 2))
    assert found.with_id(2) == [] and found.id_of(schema("b")) is None
    found.apply(SchemaGone("s", 1))
    assert found.subjects(deleted=True) == []
    assert found.last_id == 2


def test_an_id_stays_known_while_another_subject_has_the_schema() -> None:
    found = catalogue(Version("s", 1, 1, schema("a")), Version("t", 1, 1, schema("a")))
    found.apply(SchemaGone("s", 1))
    assert found.id_of(schema("a")) == 1


def test_ids_given_count_even_if_nothing_is_left_of_them() -> None:
    found = catalogue(Version("s", 1, 1, schema("a")))
    found.apply(IdsGiven(9))
    found.apply(IdsGiven(4))
    assert found.last_id == 9


def test_references_are_resolved_before_what_needs_them() -> None:
    found = catalogue(
        Version("a", 1, 1, schema("A")),
        Version("b", 1, 2, schema("B", Reference("a", "a", 1))),
    )
    wanted = schema("C", Reference("b", "b", 1), Reference("a", "a", 1))
    assert list(found.resolve(wanted).dependencies.items()) == [("a", "A"), ("b", "B")]
    assert [
        one.subject for one in found.referrers(Version("a", 1, 1, schema("A")), deleted=False)
    ] == ["b"]
    found.apply(SchemaGone("b", 1))
    assert found.referrers(Version("a", 1, 1, schema("A")), deleted=False) == []


def test_a_reference_to_nothing_or_to_what_is_deleted_is_refused() -> None:
    found = catalogue(Version("a", 1, 1, schema("A"), is_deleted=True))
    for one in (Reference("a", "a", 1), Reference("a", "a", 2), Reference("b", "b", 1)):
        with pytest.raises(InvalidSchema, match="reference"):
            found.resolve(schema("B", one))


def test_a_schema_may_not_need_the_whole_registry() -> None:
    count = REFERENCES_MAX + 1
    found = catalogue(*(Version(f"s{n}", 1, n + 1, schema(f"{n}")) for n in range(count)))
    every = [Reference(f"s{n}", f"s{n}", 1) for n in range(count)]
    with pytest.raises(InvalidSchema, match="more than"):
        found.resolve(schema("x", *every))


def test_pages() -> None:
    assert page([1, 2, 3, 4], 1, 2) == [2, 3]
    assert page([1, 2, 3, 4], 2, -1) == [3, 4]
    with pytest.raises(RegistryError):
        page([1], -1, 5)


def test_a_schema_is_found_by_its_guid_while_a_version_of_it_is_left() -> None:
    one, other = schema("A"), schema("A", Reference("a", "a", 1))
    assert len({one.guid, other.guid, schema("B").guid, one._replace(kind=Kind.JSON).guid}) == 4
    found = catalogue(Version("s", 1, 1, one), Version("t", 1, 1, one), Version("u", 1, 2, other))
    assert [found.with_guid(each.guid).id for each in (one, other)] == [1, 2]  # type: ignore[union-attr]
    found.apply(SchemaGone("s", 1))
    assert found.with_guid(one.guid) == Version("t", 1, 1, one)
    found.apply(SchemaGone("t", 1))
    assert found.with_guid(one.guid) is None

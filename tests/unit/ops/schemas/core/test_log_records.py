"""Records of the registry's topic: the very bytes, and what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.schemas.core.log_records import (
    Change,
    IdsGiven,
    LevelSet,
    LogRecord,
    ModeSet,
    SchemaGone,
    SchemaStored,
    SubjectDeleted,
    decode,
    encode,
)
from ops.schemas.core.schema import Kind, Level, Mode, Reference, Schema, Version

AVRO = Version("users-value", 3, 7, Schema(Kind.AVRO, '"string"'))


def test_an_avro_schema_has_the_layout_of_confluents_topic() -> None:
    assert encode(SchemaStored(AVRO)) == LogRecord(
        b'{"keytype":"SCHEMA","subject":"users-value","version":3,"magic":1}',
        b'{"subject":"users-value","version":3,"id":7,"schema":"\\"string\\"","deleted":false}',
    )


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (
            LevelSet(None, Level.FULL),
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"FULL"}',
        ),
        (LevelSet("s", None), b'{"keytype":"CONFIG","subject":"s","magic":0}', None),
        (
            ModeSet("s", Mode.IMPORT),
            b'{"keytype":"MODE","subject":"s","magic":0}',
            b'{"mode":"IMPORT"}',
        ),
        (
            SubjectDeleted("s", 4),
            b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
            b'{"subject":"s","version":4}',
        ),
        (
            SchemaGone("s", 2),
            b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}',
            None,
        ),
    ],
)
def test_layouts(change: Change, key: bytes, value: bytes | None) -> None:
    assert encode(change) == LogRecord(key, value)


names = st.text(min_size=1)
numbers = st.integers(1, 2**31 - 1)
references = st.lists(st.builds(Reference, names, names, numbers), max_size=3).map(tuple)
schemas = st.builds(Schema, st.sampled_from(Kind), st.text(), references)
changes = st.one_of(
    st.builds(SchemaStored, st.builds(Version, names, numbers, numbers, schemas, st.booleans())),
    st.builds(SchemaGone, names, numbers),
    st.builds(SubjectDeleted, names, numbers),
    st.builds(LevelSet, st.none() | names, st.none() | st.sampled_from(Level)),
    st.builds(ModeSet, st.none() | names, st.none() | st.sampled_from(Mode)),
    st.builds(IdsGiven, numbers),
)


@given(changes)
def test_what_was_encoded_is_decoded(change: Change) -> None:
    assert decode(*encode(change)) == change


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"[]", b"{}"),
        (b"{", b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b"{}"),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1}',
            b'{"id":1,"schema":"","schemaType":"X"}',
        ),
        (b'{"keytype":"CONFIG","subject":"s"}', b'{"compatibilityLevel":"SOME"}'),
        (b'{"keytype":"MODE","subject":"s"}', b"{}"),
        (b'{"keytype":"MODE","subject":"s"}', b"\xff"),
        (b'{"keytype":"MODE","subject":["s"]}', b'{"mode":"READONLY"}'),
        (b'{"keytype":"CONFIG","subject":{}}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"NOOP"}', b'{"lastId":Infinity}'),
        (b"[" * 100_000, b"{}"),
        (b'{"keytype":"NOOP"}', b"[" * 100_000),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1}',
            b'{"id":1,"schema":"","references":[7]}',
        ),
    ],
)
def test_what_is_no_record_of_a_registry(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError):
        decode(key, value)


def test_what_other_registries_write_beside_is_passed_over() -> None:
    assert decode(b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', b"{}") is None
    assert decode(b'{"keytype":"NOOP","magic":0}', None) is None

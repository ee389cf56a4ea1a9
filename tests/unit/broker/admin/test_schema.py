"""Checking values against schemas: what passes, what does not, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin.schema import (
    Faults,
    Schema,
    list_of,
    map_of,
    nullable,
    number,
    read,
    read_text,
    record,
    ref,
    text,
    truth,
    whole,
)

PERSON = record(
    "A person.",
    {
        "name": text("Name.", minLength=1, maxLength=5, pattern="^[a-z]*$"),
        "age": whole("Age.", 0, 150, default=7),
        "mood": nullable(text("Mood.", enum=["good", "bad"])),
        "friends": list_of(ref("Person"), "Friends.", 0, 2),
        "sizes": map_of(number("A size."), "Sizes."),
        "is_tall": truth("Tall."),
    },
    optional=("age", "mood", "friends", "sizes", "is_tall"),
)
KNOWN = {"Person": PERSON}


def faults(value: object) -> dict[str, str]:
    with pytest.raises(Faults) as caught:
        read(PERSON, value, "", KNOWN)
    return {fault.field: fault.message for fault in caught.value.faults}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "ann", "age": 7},
        {"name": "ann", "age": 150, "mood": None, "is_tall": False},
        {"name": "ann", "age": 0, "mood": "bad", "sizes": {"foot": 1.5, "hand": 2}},
        {"name": "ann", "age": 1, "friends": [{"name": "bob", "age": 7}]},
    ],
)
def test_what_fits_is_returned(value: object) -> None:
    assert read(PERSON, value, "", KNOWN) == value


def test_defaults_are_filled_in_and_whole_floats_are_ints() -> None:
    assert read(PERSON, {"name": "ann"}, "", KNOWN) == {"name": "ann", "age": 7}
    age = read(PERSON, {"name": "ann", "age": 3.0}, "", KNOWN)["age"]
    assert (age, type(age)) == (3, int)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {"body": "must be an object"}),
        ([], {"body": "must be an object"}),
        ({}, {"name": "is missing"}),
        ({"name": 3}, {"name": "must be text"}),
        ({"name": ""}, {"name": "must not be empty"}),
        ({"name": "abcdef"}, {"name": "has 6 characters; at most 5 are allowed"}),
        ({"name": "A"}, {"name": "does not match ^[a-z]*$"}),
        ({"name": "ann", "age": True}, {"age": "must be a whole number"}),
        ({"name": "ann", "age": 1.5}, {"age": "must be a whole number"}),
        ({"name": "ann", "age": -1}, {"age": "must be at least 0"}),
        ({"name": "ann", "age": 151}, {"age": "must be at most 150"}),
        ({"name": "ann", "mood": "odd"}, {"mood": "must be one of good, bad"}),
        ({"name": "ann", "mod": "bad"}, {"mod": "is not known; did you mean mood?"}),
        ({"name": "ann", "zzz": 1}, {"zzz": "is not known"}),
        ({"name": "ann", "is_tall": 1}, {"is_tall": "must be true or false"}),
        ({"name": "ann", "sizes": {"a": "1"}}, {"sizes.a": "must be a number"}),
        ({"name": "ann", "friends": [{}, {}, {}]},
         {"friends": "has 3 of them; at most 2 are allowed", "friends[0].name": "is missing",
          "friends[1].name": "is missing", "friends[2].name": "is missing"}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(value: object, expected: dict[str, str]) -> None:
    assert faults(value) == expected


@pytest.mark.parametrize("word", ["\ud800", "a\udfffb"])
def test_halves_of_characters_are_no_text(word: str) -> None:
    schema = text("Anything.")
    with pytest.raises(Faults, match="surrogate"):
        read(schema, word, "x", {})


@pytest.mark.parametrize(
    ("schema", "words", "value"),
    [
        (whole("N."), ["12"], 12),
        (whole("N.", -5), ["-3"], -3),
        (truth("B."), ["true"], True),
        (truth("B."), ["false"], False),
        (text("T."), ["12"], "12"),
        (list_of(whole("N."), "Ns."), ["1", "2"], [1, 2]),
    ],
)
def test_parameters(schema: Schema, words: list[str], value: Any) -> None:
    assert read_text(schema, words, "p") == value


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (whole("N."), ["x"]),
        (whole("N."), ["1", "2"]),
        (whole("N."), ["01"]),
        (whole("N."), ["+1"]),
        (whole("N."), ["1.0"]),
        (whole("N."), ["٣"]),
        (whole("N."), ["9" * 30]),
        (truth("B."), ["yes"]),
        (list_of(whole("N."), "Ns."), ["1", "x"]),
    ],
)
def test_parameters_that_are_none(schema: Schema, words: list[str]) -> None:
    with pytest.raises(Faults, match="p"):
        read_text(schema, words, "p")

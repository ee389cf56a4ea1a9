"""The rules of registering, deleting, levels and modes, one by one."""

from __future__ import annotations

import tracemalloc

import pytest

from ops.schemas.core import errors
from ops.schemas.core.catalogue import Catalogue
from ops.schemas.core.errors import RegistryError
from ops.schemas.core.log_records import Change, LevelSet, SchemaStored
from ops.schemas.core.registry import Asked, Registry, check_subject, parse_number
from ops.schemas.core.schema import Kind, Level, Mode, Reference, Schema, Version


class Bench:
    """A registry whose changes take effect at once."""

    def __init__(self) -> None:
        self.all = Catalogue()
        self.registry = Registry(self.all)

    def do(self, changes: list[Change]) -> None:
        for one in changes:
            self.all.apply(one)

    def register(self, subject: str, text: str, *references: Reference, **given: int) -> Version:
        asked = Asked(subject, Schema(Kind.AVRO, text, references), **given)
        version, changes = self.registry.register(asked, ())
        self.do(changes)
        return version

    def delete(self, subject: str, *, for_good: bool = False) -> list[int]:
        numbers, changes = self.registry.delete_subject(subject, for_good=for_good)
        self.do(changes)
        return numbers


@pytest.fixture
def bench() -> Bench:
    return Bench()


def code(refused: pytest.ExceptionInfo[RegistryError]) -> int:
    return refused.value.code


def test_versions_count_by_subject_and_ids_through_all(bench: Bench) -> None:
    assert bench.register("s", "a")[1:3] == (1, 1)
    assert bench.register("s", "b")[1:3] == (2, 2)
    assert bench.register("t", "b")[1:3] == (1, 2), "the same schema has the same id"
    assert bench.register("t", "c")[1:3] == (2, 3)


def test_an_id_is_never_given_a_second_time(bench: Bench) -> None:
    bench.register("s", "a")
    bench.register("s", "b")
    bench.delete("s")
    _, changes = bench.registry.delete_subject("s", for_good=True)
    after = Bench()
    after.do([one for one in changes if not isinstance(one, SchemaStored)])  # after a compaction
    assert after.register("s", "c").id == 3


def test_what_is_incompatible_is_refused_with_its_reasons(bench: Bench) -> None:
    bench.register("s", "a")
    asked = Asked("s", Schema(Kind.AVRO, "b"))
    with pytest.raises(RegistryError, match=r"BACKWARD.*a field is gone") as refused:
        bench.registry.register(asked, ["a field is gone"])
    assert (code(refused), refused.value.status) == (409, 409)


def test_what_a_new_version_is_compared_with(bench: Bench) -> None:
    for text in "abc":
        bench.register("s", text)
    compared = bench.registry.to_compare
    assert [one.number for one in compared("s", Level.BACKWARD)] == [3]
    assert [one.number for one in compared("s", Level.FULL_TRANSITIVE)] == [1, 2, 3]
    assert list(compared("s", Level.NONE)) == []
    _, changes = bench.registry.delete_version("s", 3, for_good=False)
    bench.do(changes)
    assert [one.number for one in compared("s", Level.FORWARD)] == [2]


def test_a_version_number_is_not_given_again_while_it_is_only_marked(bench: Bench) -> None:
    bench.register("s", "a")
    bench.delete("s")
    assert bench.register("s", "a")[1:3] == (2, 1)


def test_deleting_goes_in_two_steps(bench: Bench) -> None:
    bench.register("s", "a")
    bench.register("s", "b")
    with pytest.raises(RegistryError) as refused:
        bench.delete("s", for_good=True)
    assert code(refused) == errors.SUBJECT_NOT_SOFT_DELETED
    assert bench.delete("s") == [1, 2]
    with pytest.raises(RegistryError) as refused:
        bench.delete("s")
    assert code(refused) == errors.SUBJECT_SOFT_DELETED
    assert bench.delete("s", for_good=True) == [1, 2]
    with pytest.raises(RegistryError) as refused:
        bench.delete("s")
    assert code(refused) == errors.SUBJECT_NOT_FOUND


def test_deleting_one_version(bench: Bench) -> None:
    bench.register("s", "a")
    bench.register("s", "b")
    decide = bench.registry.delete_version
    for number, for_good, expected in [
        (3, False, errors.VERSION_NOT_FOUND),
        (2, True, errors.VERSION_NOT_SOFT_DELETED),
    ]:
        with pytest.raises(RegistryError) as refused:
            decide("s", number, for_good=for_good)
        assert code(refused) == expected
    number, changes = decide("s", None, for_good=False)
    bench.do(changes)
    assert number == 2
    with pytest.raises(RegistryError) as refused:
        decide("s", 2, for_good=False)
    assert code(refused) == errors.VERSION_SOFT_DELETED
    bench.do(decide("s", 2, for_good=True)[1])
    assert bench.registry.find("s", None).number == 1


def test_a_deleted_subject_loses_its_level_and_mode(bench: Bench) -> None:
    bench.register("s", "a")
    bench.do(bench.registry.set_level("s", Level.FULL))
    bench.delete("s")
    assert bench.registry.level("s") is Level.BACKWARD


def test_what_is_referred_to_stays(bench: Bench) -> None:
    bench.register("s", "a")
    bench.register("t", "b", Reference("a", "s", 1))
    for decide in (
        lambda: bench.registry.delete_subject("s", for_good=False),
        lambda: bench.registry.delete_version("s", 1, for_good=False),
    ):
        with pytest.raises(RegistryError, match="'t' version 1") as refused:
            decide()
        assert code(refused) == errors.IS_REFERENCED
    bench.delete("t")
    assert bench.delete("s") == [1]


def test_what_a_deleted_schema_refers_to_is_not_deleted_for_good(bench: Bench) -> None:
    """Records that were written with it are still read."""
    bench.register("a", "A")
    bench.register("b", "B", Reference("a", "a", 1))
    bench.delete("b")
    bench.delete("a")
    for decide in (
        lambda: bench.registry.delete_subject("a", for_good=True),
        lambda: bench.registry.delete_version("a", 1, for_good=True),
    ):
        with pytest.raises(RegistryError, match="referred to by 'b' version 1") as refused:
            decide()
        assert code(refused) == errors.IS_REFERENCED
    (b,) = bench.all.versions("b", deleted=True)
    assert bench.all.resolve(b.schema, deleted=True).dependencies == {"a": "A"}
    bench.delete("b", for_good=True)
    assert bench.delete("a", for_good=True) == [1]


def test_a_subject_whose_versions_refer_to_each_other_goes_as_a_whole(bench: Bench) -> None:
    bench.register("s", "A")
    bench.register("s", "B", Reference("a", "s", 1))
    with pytest.raises(RegistryError, match="referred to"):
        bench.registry.delete_version("s", 1, for_good=False)
    assert bench.delete("s") == [1, 2]
    assert bench.delete("s", for_good=True) == [1, 2]


def test_with_its_last_version_a_subject_loses_its_level_and_mode_for_good(bench: Bench) -> None:
    for text in "ab":
        bench.register("s", text)
    bench.do(bench.registry.set_level("s", Level.NONE))
    bench.do(bench.registry.set_mode("s", Mode.READWRITE, force=False))
    for number in (1, 2):
        bench.do(bench.registry.delete_version("s", number, for_good=False)[1])
    for number in (1, 2):
        assert bench.all.levels == {"s": Level.NONE} and bench.all.modes == {"s": Mode.READWRITE}
        bench.do(bench.registry.delete_version("s", number, for_good=True)[1])
    assert bench.all.levels == {} and bench.all.modes == {}


def test_the_next_version_may_be_named_and_no_other(bench: Bench) -> None:
    assert bench.register("s", "a", number=1).number == 1
    for wrong in (1, 3):
        with pytest.raises(RegistryError, match="the next version of subject 's' is 2") as refused:
            bench.register("s", "b", number=wrong)
        assert code(refused) == errors.INVALID_SCHEMA
    assert bench.register("s", "b", number=2).number == 2
    with pytest.raises(RegistryError, match="an id is accepted only in mode IMPORT"):
        bench.register("s", "c", id=9)


def test_levels_of_a_subject_come_before_that_of_all(bench: Bench) -> None:
    level = bench.registry.level
    assert level("s") is Level.BACKWARD
    bench.do(bench.registry.set_level(None, Level.NONE))
    bench.do(bench.registry.set_level("s", Level.FULL))
    assert (level(), level("s"), level("t")) == (Level.NONE, Level.FULL, Level.NONE)
    bench.do(bench.registry.set_level("s", None))
    assert level("s") is Level.NONE
    with pytest.raises(RegistryError) as refused:
        bench.registry.set_level("s", None)
    assert code(refused) == errors.NO_SUBJECT_LEVEL


def test_a_subject_that_may_only_be_read(bench: Bench) -> None:
    bench.register("s", "a")
    bench.do(bench.registry.set_mode("s", Mode.READONLY, force=False))
    for decide in (
        lambda: bench.register("s", "b"),
        lambda: bench.registry.delete_subject("s", for_good=False),
        lambda: bench.registry.delete_version("s", 1, for_good=False),
        lambda: bench.registry.set_level("s", Level.NONE),
    ):
        with pytest.raises(RegistryError, match="READONLY") as refused:
            decide()
        assert code(refused) == errors.NOT_PERMITTED
    bench.do(bench.registry.set_mode("s", None, force=False))
    bench.register("s", "b")


def test_import_takes_ids_and_versions_as_they_are(bench: Bench) -> None:
    with pytest.raises(RegistryError, match="IMPORT"):
        bench.register("s", "a", id=77)
    bench.do(bench.registry.set_mode("s", Mode.IMPORT, force=False))
    assert bench.register("s", "a", id=77, number=4)[1:3] == (4, 77)
    with pytest.raises(RegistryError, match="give an id"):
        bench.register("s", "b")
    with pytest.raises(RegistryError, match="another schema"):
        bench.register("s", "b", id=77)
    with pytest.raises(RegistryError, match="version 4"):
        bench.register("s", "b", id=78, number=4)
    bench.do(bench.registry.set_mode("s", None, force=False))
    assert bench.register("s", "c")[1:3] == (5, 78)


def test_import_wants_an_empty_subject_or_force(bench: Bench) -> None:
    bench.register("s", "a")
    for subject in ("s", None):
        with pytest.raises(RegistryError, match="force"):
            bench.registry.set_mode(subject, Mode.IMPORT, force=False)
        bench.registry.set_mode(subject, Mode.IMPORT, force=True)
    bench.registry.set_mode("t", Mode.IMPORT, force=False)


@pytest.mark.parametrize("name", ["", "x" * 1025, ":.context:s", "a\nb", "\x7f"])
def test_names_that_no_subject_has(bench: Bench, name: str) -> None:
    with pytest.raises(RegistryError) as refused:
        check_subject(name)
    assert code(refused) == errors.INVALID_SUBJECT
    with pytest.raises(RegistryError):
        bench.registry.set_level(name, Level.NONE)


def test_version_numbers_in_paths() -> None:
    assert (parse_number("latest"), parse_number("-1"), parse_number("12")) == (None, None, 12)
    for text in ("0", "-2", "x", "", "1.5", "٣", "9" * 400):
        with pytest.raises(RegistryError) as refused:
            parse_number(text)
        assert code(refused) == errors.INVALID_VERSION


def test_a_setting_of_the_program_holds_until_one_is_set_for_all() -> None:
    everything = Catalogue()
    registry = Registry(everything, Level.FULL)
    assert registry.level("s") is Level.FULL
    everything.apply(LevelSet(None, Level.FORWARD))
    assert registry.level("s") is Level.FORWARD


def test_what_the_catalogue_takes_in_memory_is_bounded() -> None:
    bench = Bench()
    most = 200_000
    bench.registry = Registry(bench.all, held_bytes_max=most)
    with pytest.raises(RegistryError, match="held_bytes_max is 200000") as refused:
        for number in range(1_000):
            bench.register("s", f"{number} {'x' * 5_000}")
    assert code(refused) == errors.NOT_PERMITTED
    kept = len(bench.all.versions("s"))
    assert most - 10_000 < bench.all.held_bytes <= most
    assert kept == bench.all.last_id
    with pytest.raises(RegistryError, match="held_bytes_max"):
        for number in range(10_000):
            bench.do(bench.registry.set_level(f"subject {number}", Level.FULL))
    for number in range(10_000):  # what goes makes room
        if f"subject {number}" in bench.all.levels:
            bench.do(bench.registry.set_level(f"subject {number}", None))
    bench.delete("s")
    bench.delete("s", for_good=True)
    assert bench.all.held_bytes == 0
    bench.register("s", "x" * 100_000)


def test_what_is_counted_is_what_it_takes() -> None:
    """Beside dear texts, many small ones: measured, so that the limit is one of memory."""
    bench = Bench()
    tracemalloc.start()
    try:
        for number in range(2_000):
            bench.register(f"subject-{number % 500}", f"text {number}", Reference("r", "t", 1))
        found, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bench.all.held_bytes / 3 < found < bench.all.held_bytes

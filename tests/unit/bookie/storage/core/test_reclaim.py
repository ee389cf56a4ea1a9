"""Which files are given back, which are rewritten together, which are left alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.append_log import FILE_HEADER_BYTES
from bookie.storage.core.reclaim import FileState, plan

FULL = 1000


def file(number: int, live: int, size: int = FULL, *, is_readable: bool = True) -> FileState:
    return FileState(number, size + FILE_HEADER_BYTES, live, is_readable)


def numbers(files: list[FileState], threshold: float) -> list[list[int]]:
    rewrite = plan(files, threshold=threshold, copy_bytes_max=FULL).rewrite
    return [[file.number for file in group] for group in rewrite]


def test_a_file_without_life_is_given_back_whatever_the_threshold() -> None:
    files = [file(1, 0), file(2, 1), file(3, 0)]
    for threshold in (0.0, 0.5):
        assert plan(files, threshold=threshold, copy_bytes_max=FULL).give_back == (1, 3)


def test_below_the_threshold_files_are_rewritten_together_in_log_order() -> None:
    files = [file(7, 100), file(1, 0), file(2, 100), file(5, 900), file(3, 199), file(4, 200)]
    assert numbers(files, 0.0) == []
    assert numbers(files, 0.2) == [[7, 2], [3]]
    assert numbers(files, 0.95) == [[7, 2], [5], [3, 4]]


def test_no_record_may_pass_another() -> None:
    """Only neighbours share a copy, whatever stands between them and however alive it is."""
    files = [file(1, 10), file(2, 999), file(3, 10), file(4, 10, is_readable=False), file(5, 10)]
    assert numbers(files, 0.2) == [[1], [3], [5]]


def test_a_copy_is_no_larger_than_a_file() -> None:
    files = [file(n, 400) for n in range(1, 6)]
    assert numbers(files, 0.5) == [[1, 2], [3, 4], [5]]
    assert numbers([file(1, 1500, size=2000), file(2, 10)], 0.8) == [[1], [2]]


def test_many_very_small_files_are_rewritten_even_if_all_in_them_lives() -> None:
    small = [file(n, 50, size=50 - FILE_HEADER_BYTES // 2) for n in range(1, 9)]
    few = [FileState(f.number, 60, 60) for f in small[:7]]
    many = [FileState(f.number, 60, 60) for f in small]
    assert numbers(few, 0.2) == []
    assert numbers(many, 0.2) == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert numbers(many, 0.0) == []


def test_an_unreadable_file_is_left_alone_until_nothing_in_it_lives() -> None:
    files = [file(1, 10, is_readable=False), file(2, 0, is_readable=False), file(3, 10)]
    assert plan(files, threshold=0.2, copy_bytes_max=FULL).give_back == (2,)
    assert numbers(files, 0.2) == [[3]]


@given(
    st.lists(st.tuples(st.integers(64, 2000), st.floats(0, 1)), max_size=40),
    st.floats(0, 1),
)
def test_every_file_is_treated_once_and_groups_fit(
    files: list[tuple[int, float]], threshold: float
) -> None:
    states = [FileState(n, size, int(size * part)) for n, (size, part) in enumerate(files)]
    made = plan(states, threshold=threshold, copy_bytes_max=FULL)
    rewritten = [file for group in made.rewrite for file in group]
    assert [f.number for f in rewritten] == sorted({f.number for f in rewritten})
    assert not set(made.give_back) & {f.number for f in rewritten}
    for group in made.rewrite:
        assert len(group) == 1 or sum(f.live_bytes for f in group) <= FULL

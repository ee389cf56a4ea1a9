"""Free memory is filled with pages of a file that costs no disk, and no further than that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ops.bench.page_cache import PageCache

MIB = 1 << 20


def meminfo(free: Iterator[int]) -> str:
    return f"MemTotal: {8 * 1024} kB\nMemFree: {next(free) // 1024} kB\n"


def test_it_reads_until_little_is_free_and_then_goes_on_behind(tmp_path: Path) -> None:
    free = iter([0, 900 * MIB, 900 * MIB, *[400 * MIB] * 1000])
    cache = PageCache(tmp_path, lambda: meminfo(free))
    assert cache.fill() == 8 * MIB
    assert cache.fill() == 0
    assert not list(tmp_path.iterdir()), "its file has no name, so nothing is left behind"
    cache.close()


def test_it_ends_when_something_frees_memory_as_fast(tmp_path: Path) -> None:
    cache = PageCache(tmp_path, lambda: meminfo(iter([900 * MIB])))
    assert cache.fill() == 16 * MIB, "twice the machine's memory"
    assert cache.fill() == 16 * MIB
    cache.close()


def test_without_a_folder_memory_stays_as_it_is() -> None:
    cache = PageCache(None)
    assert cache.fill() == 0
    cache.close()

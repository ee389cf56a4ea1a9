"""The file system that forgets, without mounting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.forgetful import FORGET, FULL, ForgetfulFiles, Fullness


@pytest.fixture
def files(tmp_path: Path) -> ForgetfulFiles:
    made = ForgetfulFiles(str(tmp_path))
    for path in ("/000001.log", "/000002.ldb"):
        made.create(path, 0o600)
    return made


def fill(files: ForgetfulFiles, fullness: Fullness) -> None:
    files.write("/" + FULL, fullness.encode(), 0, 0)


def refused(files: ForgetfulFiles) -> list[int]:
    return [int(count) for count in files.read("/" + FULL, 100, 0, 0).split()]


def test_what_was_not_synced_is_forgotten(files: ForgetfulFiles) -> None:
    files.write("/000001.log", b"synced", 0, 0)
    files.fsync("/000001.log", 1, 0)
    files.write("/000001.log", b" and not", 6, 0)
    assert files.read("/000001.log", 100, 0, 0) == b"synced and not"
    files.write("/" + FORGET, b"1", 0, 0)
    assert files.read("/000001.log", 100, 0, 0) == b"synced"


def test_tables_do_not_fit_before_nothing_does(files: ForgetfulFiles) -> None:
    fill(files, Fullness.NO_TABLES)
    with pytest.raises(OSError, match="full"):
        files.write("/000002.ldb", b"table", 0, 0)
    files.write("/000001.log", b"entry", 0, 0)
    files.fsync("/000001.log", 1, 0)
    assert refused(files) == [1, 0]
    fill(files, Fullness.FULL)
    for path in ("/000001.log", "/000002.ldb"):
        with pytest.raises(OSError, match="full"):
            files.write(path, b"more", 5, 0)
    assert refused(files) == [1, 1]
    fill(files, Fullness.ROOM)
    files.write("/000002.ldb", b"table", 0, 0)
    assert files.read("/000002.ldb", 100, 0, 0) == b"table"
    assert files.read("/000001.log", 100, 0, 0) == b"entry"

"""`quire bookie inspect` on real files: sound ones, torn ones, damaged ones, missing ones."""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bookie.__main__ import make_index
from bookie.config import BookieConfig
from bookie.membership.cookie import Cookie
from bookie.metrics import BookieMetrics
from bookie.storage.core.append_log import RECORD_HEADER_BYTES
from bookie.storage.core.group_commit import Backlog
from bookie.storage.disk import RealDisk
from bookie.storage.replay import init_log, replay
from bookie.storage.storage import Storage
from client.ids import BookieId, EntryId, LedgerId
from client.wire.bookkeeper.messages import Status
from ops.cli.main import quire
from tests.fakes.bookie_box import KEY, LIMITS, NOW_MS, add

LOG = "log/0000000001.log"


class Stopped:
    """The data directory of a bookie that was stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = BookieConfig(data_dir=folder)

    def disk(self) -> RealDisk:
        return RealDisk(self.folder, preallocate_bytes=0, free_bytes_min=0, reader_threads=1)

    async def write(self, file_bytes: int = 1 << 20) -> None:
        """Two ledgers, one fenced, one more that was deleted."""
        disk = self.disk()
        rng = random.Random(1)
        init_log(disk, rng)
        disk.save("VERSION", Cookie(BookieId("b1"), (str(self.folder),), "cluster-1").encode())
        factory = partial(make_index, self.config, self.folder)
        replayed = replay(disk, factory, log_file_bytes_max=file_bytes)
        storage = Storage(
            replayed,
            disk,
            LIMITS,
            backlog=Backlog(1 << 20),
            loop=asyncio.get_running_loop(),
            metrics=BookieMetrics(),
            on_failed=lambda error: None,
        )

        async def done(begin: Any) -> Status:
            future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
            begin(future.set_result)
            async with asyncio.timeout(10):
                return await future

        for entry in range(5):
            assert await done(partial(storage.add, add(7, entry, bytes(100), lac=entry - 1))) == 0
        for entry in (3, 3, 900):
            assert await done(partial(storage.add, add(8, entry, bytes(50)))) == 0
        assert await done(partial(storage.add, add(9, 0))) == 0
        assert await done(partial(storage.fence, LedgerId(8), KEY)) == 0
        assert await done(partial(storage.delete, LedgerId(9), NOW_MS)) == 0
        self.place = replayed.index.places.location(LedgerId(7), EntryId(2))
        await storage.close()
        disk.close()

    def flip(self, position: int, name: str = LOG) -> None:
        path = self.folder / name
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        path.write_bytes(data)


@pytest.fixture
async def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    """`data/bookie-0`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    stopped = Stopped(tmp_path / "data" / "bookie-0")
    await stopped.write()
    return stopped


def inspect(*words: str) -> Result:
    # Commands run a loop of their own.
    return CliRunner().invoke(quire, ["bookie", "inspect", *words])


def as_json(*words: str) -> tuple[int, dict[str, Any]]:
    result = inspect("data/bookie-0", "--json", *words)
    return result.exit_code, json.loads(result.stdout)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_example_of_the_help_text_works(stopped: Stopped) -> None:
    example = "quire bookie inspect data/bookie-0"
    assert example in inspect("--help").output
    before = contents(stopped.folder)
    result = inspect(*example.split()[3:])
    assert result.exit_code == 0, result.output
    assert "b1" in result.stdout
    assert "cluster-1" in result.stdout
    assert LOG in result.stdout
    assert "No damage was found." in result.stderr
    assert contents(stopped.folder) == before, "looking changes nothing"


def test_ledgers_as_the_records_tell(stopped: Stopped) -> None:
    code, found = as_json()
    assert code == 0
    assert found["problems"] == []
    assert found["ledgers"] == [
        {
            "ledger": 7,
            "entries": 5,
            "entry_bytes": 5 * 136,
            "last_entry": 4,
            "last_confirmed": 3,
            "fenced": False,
        },
        {
            "ledger": 8,
            "entries": 2,
            "entry_bytes": 3 * 86,
            "last_entry": 900,
            "last_confirmed": None,
            "fenced": True,
        },
    ]
    [file] = found["files"]
    assert (file["name"], file["damage"], file["torn_at"]) == (LOG, [], None)
    # 3 keys, 9 entries, a fence, a deletion
    assert file["records"] == 14
    assert file["bytes"] == 64 + file["record_bytes"]


def test_every_byte_of_a_record_is_verified(stopped: Stopped) -> None:
    """In front of the checkpoint everything was durable, so nothing passes for a torn end."""
    place = stopped.place
    assert place is not None
    for position in range(place.position, place.end, 5):
        stopped.flip(position)
        code, found = as_json()
        assert code == 1, position
        assert found["files"][0]["damage"] == [[place.position, place.end]]
        assert [each["entries"] for each in found["ledgers"]] == [4, 2]
        stopped.flip(position)
    assert as_json()[0] == 0


def test_damage_is_said_in_words_with_its_exit_code(stopped: Stopped) -> None:
    assert stopped.place is not None
    start, end = stopped.place.position, stopped.place.end
    stopped.flip(start + RECORD_HEADER_BYTES)
    result = inspect("data/bookie-0")
    assert result.exit_code == 1
    assert f"damaged: {start}-{end}" in result.stdout
    assert f"{LOG}: {end - start} bytes from {start} to {end} are damaged." in result.stderr


def test_the_index_is_looked_up_entry_by_entry(stopped: Stopped) -> None:
    before = contents(stopped.folder)
    code, found = as_json("--index")
    assert (code, found["indexed_entries"]) == (0, 7)
    assert contents(stopped.folder) == before
    assert stopped.place is not None
    stopped.flip(stopped.place.position)
    code, found = as_json("--index")
    assert code == 1
    assert "1 entries of the index cannot be read from the log" in found["problems"]


def test_a_damaged_index_is_a_problem_and_no_more(stopped: Stopped) -> None:
    for path in (stopped.folder / "index").glob("MANIFEST-*"):
        path.write_bytes(b"nonsense")
    code, found = as_json("--index")
    assert code == 1
    assert "a start rebuilds it from the log" in found["problems"][0]
    assert as_json()[0] == 0, "the log alone is sound"


def test_a_torn_end_is_no_damage(stopped: Stopped) -> None:
    path = stopped.folder / LOG
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"Qrec" + bytes(3) + b"\x01" * 70)
    code, found = as_json()
    assert code == 0
    assert found["files"][0]["torn_at"] == size


def test_without_a_checkpoint_the_rest_is_read_all_the_same(stopped: Stopped) -> None:
    (stopped.folder / "CHECKPOINT").write_bytes(b"{}\n00000000\n")
    code, found = as_json()
    assert code == 1
    assert "CHECKPOINT is damaged" in found["problems"][0]
    assert [each["entries"] for each in found["ledgers"]] == [5, 2]
    (stopped.folder / "CHECKPOINT").unlink()
    (stopped.folder / "VERSION").unlink()
    code, found = as_json()
    assert code == 1
    assert len(found["problems"]) == 2
    assert found["files"][0]["records"] == 14


def test_a_damaged_header_is_told(stopped: Stopped) -> None:
    stopped.flip(20)
    code, found = as_json()
    assert code == 1
    assert f"{LOG}: its header is damaged" in found["problems"]
    assert found["files"][0]["records"] == 14


async def test_a_missing_file_is_told_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = Stopped(tmp_path / "data" / "bookie-0")
    await stopped.write(file_bytes=1024)
    (stopped.folder / LOG).unlink()
    code, found = await asyncio.to_thread(as_json)
    assert code == 1
    assert found["problems"] == [f"{LOG} is missing; the bookie does not start"]
    assert [file["name"] for file in found["files"]] == ["log/0000000002.log"]


def test_a_running_bookie_and_other_directories_are_left_alone(
    stopped: Stopped, tmp_path: Path
) -> None:
    disk = stopped.disk()
    result = inspect("data/bookie-0")
    assert result.exit_code == 1
    assert "is in use by a running bookie: stop it first" in result.output
    disk.close()
    result = inspect(str(tmp_path))
    assert result.exit_code == 1
    assert "is not a bookie's data directory" in result.output
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]

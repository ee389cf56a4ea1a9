"""Cookies: a new bookie gets one, the same bookie comes back, everything else is refused."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Sequence

import pytest

from bookie.membership.cookie import FILE_NAME, Cookie, admit, decode_cookie
from bookie.storage.index.index import Index
from bookie.storage.index.indexer import FILE_NAME as CHECKPOINT
from bookie.storage.ledger_directory import Directory
from client.errors import ConfigError, MetadataCorrupt, MetadataError
from client.ids import BookieId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, read_instance_id
from client.metadata.memory import Fault, MemoryCluster, Operation
from client.metadata.store import MetadataStore
from tests.fakes.bad_nodes import HUGE, NEWER_FORMAT, NO_JSON
from tests.fakes.disk import CrashDisk
from tests.simulation.machine.volume import Volume

ROOT = "/ledgers"
BOOKIE = BookieId("10.0.0.1:3181")
PATH = paths.cookie(BOOKIE, ROOT)


def no_index(wipe: bool) -> Index:
    raise AssertionError("nobody opens an index to look at a cookie")


class Place:
    """A metadata store and a data directory."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.cluster = MemoryCluster()
        self.store: MetadataStore = self.cluster.session()
        self.disk = CrashDisk(Volume(self.rng))
        self.disks: dict[str, CrashDisk] = {}

    async def initialised(self) -> Place:
        await init_bookkeeper(self.store, rng=self.rng)
        return self

    async def admit(self, bookie_id: BookieId = BOOKIE, data_dir: str = "/data/b") -> None:
        await self.admit_several([data_dir], bookie_id=bookie_id)

    async def admit_several(
        self, paths: Sequence[str], *, bookie_id: BookieId = BOOKIE, may_grow: bool = False
    ) -> Cookie:
        """Give directories; the first one has the disk that all tests look at."""
        return await admit(
            self.store,
            [Directory(path, self.disk_of(path, n), no_index) for n, path in enumerate(paths)],
            bookie_id=bookie_id,
            may_grow=may_grow,
            root=ROOT,
            rng=self.rng,
        )

    def disk_of(self, path: str, position: int = 1) -> CrashDisk:
        """Return the disk of a further directory."""
        if position == 0:
            return self.disk
        return self.disks.setdefault(path, CrashDisk(Volume(self.rng)))

    def write_log(self) -> None:
        self.disk.save("log/0000000001.log", b"something")


def test_the_text_is_bookkeepers() -> None:
    cookie = Cookie(BOOKIE, ("/data/l",), "0c1e")
    text = cookie.encode()
    assert text == (
        b'5\nbookieHost: "10.0.0.1:3181"\njournalDir: "/data/l"\n'
        b'ledgerDirs: "1\\t/data/l"\ninstanceId: "0c1e"\n'
    )
    assert decode_cookie(text, "x") == cookie
    assert decode_cookie(text + b'indexDirs: "1\\t/i"\nlater: 7\n', "x") == cookie


@pytest.mark.parametrize("text", [b"", b"4\nbookieHost: 'x'", b"5\nbookieHost: {", b"\xff\xfe"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError, match="cookie in x"):
        decode_cookie(text, "x")


def test_the_text_of_several_directories_is_bookkeepers() -> None:
    cookie = Cookie(BOOKIE, ("/a", "/b"), "0c1e")
    text = cookie.encode()
    assert b'journalDir: "/a,/b"\nledgerDirs: "2\\t/a\\t/b"\n' in text
    assert decode_cookie(text, "x") == cookie


async def test_a_new_bookie_gets_its_cookie_in_both_places() -> None:
    place = await Place().initialised()
    await place.admit()
    local, remote = place.disk.load(FILE_NAME), (await place.store.get(PATH)).data
    assert local == remote
    cookie = decode_cookie(remote, "x")
    assert cookie == (BOOKIE, ("/data/b",), await read_instance_id(place.store))
    assert place.disk.load(CHECKPOINT) is not None


async def test_the_same_bookie_comes_back_even_from_another_path() -> None:
    place = await Place().initialised()
    await place.admit()
    place.write_log()
    await place.admit()
    await place.admit(data_dir="/mnt/moved")
    assert decode_cookie((await place.store.get(PATH)).data, "x").bookie_id == BOOKIE


async def test_without_a_cluster_there_is_no_bookie() -> None:
    with pytest.raises(ConfigError, match="no cluster at /ledgers"):
        await Place().admit()


async def test_a_tree_of_another_ledger_manager_is_refused() -> None:
    place = await Place().initialised()
    await place.store.set(paths.layout(ROOT), b"2\nFlatLedgerManagerFactory:1")
    with pytest.raises(MetadataCorrupt):
        await place.admit()


async def test_an_empty_directory_under_a_known_id_is_refused() -> None:
    """Apache BookKeeper issue 2612: it would deny entries that it once acknowledged."""
    place = await Place().initialised()
    await place.admit()
    place.disk.volume.wipe()
    with pytest.raises(ConfigError, match="known to the cluster"):
        await place.admit()
    assert place.disk.names() == []


async def test_a_removed_bookie_with_data_does_not_come_back() -> None:
    place = await Place().initialised()
    await place.admit()
    place.write_log()
    await place.store.delete(PATH)
    with pytest.raises(ConfigError, match="removed from the cluster"):
        await place.admit()


async def test_a_log_without_a_cookie_is_refused() -> None:
    place = await Place().initialised()
    place.write_log()
    with pytest.raises(ConfigError, match="no VERSION"):
        await place.admit()


async def test_another_bookies_directory_is_refused() -> None:
    place = await Place().initialised()
    await place.admit()
    with pytest.raises(ConfigError, match=f"belongs to bookie {BOOKIE}"):
        await place.admit(BookieId("other:1"))


async def test_another_clusters_directory_is_refused() -> None:
    place = await Place().initialised()
    await place.admit()
    await place.store.set(paths.instance_id(ROOT), b"another")
    with pytest.raises(ConfigError, match="belongs to cluster"):
        await place.admit()


async def test_a_different_cookie_in_the_store_is_refused() -> None:
    place = await Place().initialised()
    await place.admit()
    other = Cookie(BOOKIE, ("/elsewhere",), await read_instance_id(place.store))
    await place.store.set(PATH, other.encode())
    with pytest.raises(ConfigError, match="not the one in"):
        await place.admit()


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_first_start_that_was_cut_short_is_completed(fault: Fault) -> None:
    place = await Place().initialised()

    def lose(operation: Operation) -> Fault | None:
        return fault if operation.name == "create" and operation.path == PATH else None

    place.cluster.on_request = lose
    if fault is Fault.LOSE_REQUEST:
        with pytest.raises(Exception, match=PATH):
            await place.admit()
        place.cluster.on_request = lambda operation: None
    await place.admit()
    assert (await place.store.get(PATH)).data == place.disk.load(FILE_NAME)


async def test_a_first_cookie_that_takes_effect_late_is_waited_for() -> None:
    """Its answer was lost, and it is on its way to the leader still."""
    place = await Place().initialised()
    place.cluster.late_s = lambda: 60.0

    def delay(operation: Operation) -> Fault | None:
        return Fault.DELAY_REQUEST if operation.name == "create" else None

    place.cluster.on_request = delay
    await place.admit()
    assert (await place.store.get(PATH)).data == place.disk.load(FILE_NAME)


async def test_a_server_that_lags_shows_no_cookie_that_was_removed() -> None:
    place = await Place().initialised()
    await place.admit()
    place.write_log()
    place.cluster.freeze(place.store)
    await place.cluster.session().delete(PATH)
    with pytest.raises(ConfigError, match="it was removed from the cluster"):
        await place.admit()


async def test_a_server_that_lags_does_not_turn_a_bookie_away() -> None:
    place = await Place().initialised()
    cookie = Cookie(BOOKIE, ("/data/b",), await read_instance_id(place.store))
    place.write_log()
    place.disk.save(FILE_NAME, cookie.encode())
    place.cluster.freeze(place.store)
    await place.cluster.session().create(PATH, cookie.encode(), make_parents=True)
    await place.admit()


async def test_a_cookie_that_somebody_else_made_meanwhile_is_respected() -> None:
    """Two machines with the same id start for the first time at the same moment."""
    place = await Place().initialised()
    other = Cookie(BOOKIE, ("/elsewhere",), await read_instance_id(place.store))

    def faster(operation: Operation) -> None:
        if operation.name == "create" and operation.path == PATH:
            place.cluster.on_request = lambda operation: None
            place.cluster.tree.create(PATH, other.encode(), now_ms=0, make_parents=True)

    place.cluster.on_request = faster
    with pytest.raises(ConfigError, match="belongs to another bookie"):
        await place.admit()
    assert (await place.store.get(PATH)).data == other.encode()


async def test_several_directories_carry_the_same_cookie() -> None:
    place = await Place().initialised()
    cookie = await place.admit_several(["/a", "/b", "/c"])
    assert cookie.directories == ("/a", "/b", "/c")
    text = (await place.store.get(PATH)).data
    for disk in (place.disk, place.disk_of("/b"), place.disk_of("/c")):
        assert disk.load(FILE_NAME) == text
        disk.save("log/0000000001.log", b"something")
    assert await place.admit_several(["/a", "/b", "/c"]) == cookie


@pytest.mark.parametrize("given", [["/a"], ["/a", "/b"], ["/a", "/b", "/other"]])
@pytest.mark.parametrize("may_grow", [False, True])
async def test_a_missing_directory_is_a_refusal(given: list[str], may_grow: bool) -> None:
    place = await Place().initialised()
    await place.admit_several(["/a", "/b", "/c"])
    with pytest.raises(ConfigError):
        await place.admit_several(given, may_grow=may_grow)
    assert place.disk_of("/other").names() == []


async def test_an_empty_directory_is_added_only_if_that_is_allowed() -> None:
    place = await Place().initialised()
    await place.admit_several(["/a"])
    place.write_log()
    with pytest.raises(ConfigError, match="allow-storage-expansion"):
        await place.admit_several(["/a", "/b"])
    grown = await place.admit_several(["/a", "/b"], may_grow=True)
    assert grown.directories == ("/a", "/b")
    assert place.disk.load(FILE_NAME) == place.disk_of("/b").load(FILE_NAME) == grown.encode()
    assert place.disk_of("/b").load(CHECKPOINT) is not None
    assert await place.admit_several(["/a", "/b"]) == grown


async def test_what_a_newer_release_has_written_stays_in_a_cookie_that_grows() -> None:
    place = await Place().initialised()
    await place.admit_several(["/a"])
    theirs = b'storageKind: "sorted"\n'
    await place.store.set(PATH, (await place.store.get(PATH)).data + theirs)
    grown = await place.admit_several(["/a", "/b"], may_grow=True)
    assert (await place.store.get(PATH)).data == grown.encode() + theirs
    assert await place.admit_several(["/a", "/b"]) == grown


async def test_a_used_directory_is_never_added() -> None:
    place = await Place().initialised()
    await place.admit_several(["/a"])
    place.disk_of("/b").save("log/0000000001.log", b"of somebody else")
    with pytest.raises(ConfigError, match="no VERSION"):
        await place.admit_several(["/a", "/b"], may_grow=True)


@pytest.mark.parametrize("saves", range(6))
@pytest.mark.parametrize("fault", [None, *Fault])
async def test_growing_that_was_cut_short_is_completed(
    monkeypatch, saves: int, fault: Fault | None
) -> None:
    place = await Place().initialised()
    await place.admit_several(["/a"])
    place.write_log()
    save = CrashDisk.save
    left = [saves]

    def save_some(disk: CrashDisk, name: str, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("killed")
        save(disk, name, data)

    place.cluster.on_request = lambda operation: fault if operation.name == "set" else None
    with monkeypatch.context() as patch:
        patch.setattr(CrashDisk, "save", save_some)
        with contextlib.suppress(OSError, MetadataError):
            await place.admit_several(["/a", "/b"], may_grow=True)
    place.cluster.on_request = lambda operation: None
    grown = await place.admit_several(["/a", "/b"], may_grow=True)
    assert (await place.store.get(PATH)).data == grown.encode()
    assert place.disk_of("/b").load(CHECKPOINT) is not None, "ready to be replayed"
    assert place.disk.load(FILE_NAME) == place.disk_of("/b").load(FILE_NAME) == grown.encode()


@pytest.mark.parametrize("saves", range(3))
async def test_305_a_first_start_of_several_directories_that_was_cut_short_is_completed(
    monkeypatch, saves: int
) -> None:
    """Also 544 and 3306: a cookie missing or half written at the first start."""
    place = await Place().initialised()
    save = CrashDisk.save
    left = [saves]

    def save_some(disk: CrashDisk, name: str, data: bytes) -> None:
        if name == FILE_NAME:
            left[0] -= 1
            if left[0] < 0:
                raise OSError("killed")
        save(disk, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(CrashDisk, "save", save_some)
        with contextlib.suppress(OSError):
            await place.admit_several(["/a", "/b"])
    cookie = await place.admit_several(["/a", "/b"])
    assert place.disk.load(FILE_NAME) == place.disk_of("/b").load(FILE_NAME) == cookie.encode()


@pytest.mark.parametrize(
    "bad", [b"", NO_JSON, NEWER_FORMAT, HUGE, b"5" + HUGE[1:], b"4\n" + HUGE[2:]]
)
async def test_a_cookie_that_cannot_be_read_is_named_and_stays(bad: bytes) -> None:
    place = await Place().initialised()
    await place.admit()
    await place.store.set(PATH, bad)
    with pytest.raises(ConfigError, match=re.escape(PATH)) as caught:
        await place.admit()
    assert "put back its bytes of a backup" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert (await place.store.get(PATH)).data == bad
    assert place.store.unreadable.all().keys() == {PATH}

"""The ZooKeeper server's jars come out of a package of an index, or nothing changes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ops import zookeeper_jars
from ops.zookeeper_jars import JarsMissing, Pin, fetch, find_jars, pinned

pytestmark = pytest.mark.smoke

WANTED = ["netty-transport-native-unix-common-4.jar", "zookeeper-3.9.5.jar", "zookeeper-jute-3.jar"]
OTHERS = ["netty-transport-native-epoll-4-linux-x86_64.jar", "spark-core_2.13-4.3.0.jar"]


def package(*jars: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for jar in (*jars, "../../escaped.txt"):
            content = jar.encode()
            member = tarfile.TarInfo(f"pyspark-4.3.0/deps/jars/{jar}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


class Index:
    """An index of packages on loopback, with one file of PySpark."""

    def __init__(self, content: bytes, *, is_json: bool) -> None:
        self.asked: list[tuple[str, str | None]] = []
        digest = hashlib.sha256(content).hexdigest()
        name = "pyspark-4.3.0.tar.gz"
        if is_json:
            files = [
                {"filename": "pyspark-4.2.0.tar.gz", "url": "old", "hashes": {"sha256": digest}},
                {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": digest}},
            ]
            listing = json.dumps({"files": files}).encode()
        else:
            listing = f'<a href="../../files/{name}#sha256={digest}">{name}</a>'.encode()
        kind = zookeeper_jars._LISTING if is_json else "text/html"
        pages: Mapping[str, tuple[str, bytes]] = {
            "/simple/pyspark/": (kind, listing),
            f"/files/{name}": ("application/octet-stream", content),
        }
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers.get("Authorization")))
                kind, body = pages[self.path]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.address = f"127.0.0.1:{self.server.server_port}/simple"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(params=[True, False], ids=["json", "html"])
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    content = package(*OTHERS, *WANTED)
    pin = Pin("4.3.0", frozenset({hashlib.sha256(content).hexdigest()}))
    monkeypatch.setattr(zookeeper_jars, "pinned", lambda: pin)
    found = Index(content, is_json=request.param)
    yield found
    found.close()


def test_the_servers_jars_are_kept_and_nothing_else(index: Index, tmp_path: Path) -> None:
    told: list[str] = []
    folder = tmp_path / "share" / "zookeeper"
    environ = {"PIP_INDEX_URL": f"http://me:se%40cret@{index.address}"}
    assert fetch(folder, environ, told.append) == WANTED
    assert sorted(path.name for path in folder.iterdir()) == WANTED
    assert [path.name for path in folder.parent.iterdir()] == ["zookeeper"]
    assert (folder / WANTED[1]).read_text() == WANTED[1]
    assert told[-1].startswith("100 %")
    assert [login for _, login in index.asked] == ["Basic bWU6c2VAY3JldA=="] * 2
    assert fetch(folder, environ) == WANTED, "again, in place of those"


def test_another_package_than_the_pinned_one_changes_nothing(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_jars, "_file_of", lambda *_: (index_file(index), "0" * 64))
    with pytest.raises(JarsMissing, match="its SHA-256 differs"):
        fetch(tmp_path / "jars", {"PIP_INDEX_URL": f"http://{index.address}"})
    assert list(tmp_path.iterdir()) == []


def index_file(index: Index) -> str:
    return f"http://{index.address.removesuffix('/simple')}/files/pyspark-4.3.0.tar.gz"


def test_what_is_not_pinned_is_not_taken(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_jars, "pinned", lambda: Pin("4.3.0", frozenset({"0" * 64})))
    with pytest.raises(JarsMissing, match=r"no source package of pyspark 4\.3\.0 that is pinned"):
        fetch(tmp_path / "jars", {"PIP_INDEX_URL": f"http://{index.address}"})
    assert len(index.asked) == 1, "only the listing"


def test_an_index_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JarsMissing, match=r"PySpark's package could not be read: .*refused"):
        fetch(tmp_path / "jars", {"PIP_INDEX_URL": "http://127.0.0.1:1/simple"})


def test_the_pin_is_that_of_releases() -> None:
    pin = pinned()
    assert pin.version == "4.3.0" and all(len(one) == 64 for one in pin.sha256)
    constraints = Path("constraints.txt").read_text().splitlines()
    assert f"pyspark=={pin.version}" in constraints


def test_without_jars_the_way_to_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_jars, "FOLDER", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(JarsMissing) as caught:
        find_jars()
    assert str(caught.value) == (
        "there is no ZooKeeper server here: fetch its jars with `python -m ops.zookeeper_jars` (11"
        " MB, out of PySpark's package), install PySpark, or use a server that runs already with"
        " --zookeeper"
    )


def test_the_class_path_holds_the_server_and_little_else() -> None:
    jars = [jar.name for jar in find_jars()]
    assert len(jars) == len(set(jars))
    assert any(jar.startswith("zookeeper-3.") for jar in jars)
    assert any(jar.startswith("zookeeper-jute-") for jar in jars)
    assert len(jars) < 40
    assert not any("spark" in jar or "hadoop" in jar for jar in jars)

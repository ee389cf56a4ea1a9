"""The ZooKeeper server's jars: 11 MB out of PySpark's package, without installing Spark.

PySpark carries a whole ZooKeeper server among its jars, and its package on the Python index is the
one place where `pip` users can get it. The package (some 450 MB) is read as a stream: the jars
below are kept, nothing else is written, and all of it is thrown away unless its SHA-256 is the one
that `ops/deploy/requirements/spark.txt` pins. Where PySpark is installed nothing is fetched.

    python -m ops.zookeeper_jars      what `make up` runs when the jars are not there
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from client.errors import QuireError

FOLDER: Final = Path(sys.prefix) / "share" / "quire" / "zookeeper"
"""Where the jars are kept, in the environment that Quire is installed in."""

_PINS: Final = Path(__file__).with_name("deploy") / "requirements" / "spark.txt"
_PREFIXES: Final = (
    "zookeeper-",
    "zookeeper-jute-",
    "metrics-core-",
    "snappy-java-",
    "netty-buffer-",
    "netty-codec-",
    "netty-common-",
    "netty-handler-",
    "netty-resolver-",
    "netty-transport-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-",
    "log4j-core-",
)
_LISTING: Final = "application/vnd.pypi.simple.v1+json"
_TIMEOUT_S: Final = 60.0
_BLOCK: Final = 1 << 20
_STEP: Final = 10
"""Progress is told after as many more hundredths."""


class JarsMissing(QuireError):
    """The ZooKeeper server's jars are not there, or could not be fetched. Nothing was changed."""


class Pin(NamedTuple):
    """The version of PySpark that is taken, and the digests that its files may have."""

    version: str
    sha256: frozenset[str]


def find_jars() -> list[Path]:
    """Return the jars of the ZooKeeper server: those that were fetched, else PySpark's.

    Raises JarsMissing, saying how to get them.
    """
    folders = [FOLDER]
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "jars")
    for folder in folders:
        jars = [
            jar
            for prefix in _PREFIXES
            for jar in sorted(folder.glob(f"{prefix}*.jar"))
            if is_needed(jar.name)
        ]
        if any(re.match(r"zookeeper-\d", jar.name) for jar in jars):
            return list(dict.fromkeys(jars))
    raise JarsMissing(
        "there is no ZooKeeper server here: fetch its jars with `python -m ops.zookeeper_jars` (11"
        " MB, out of PySpark's package), install PySpark, or use a server that runs already with"
        " --zookeeper"
    )


def is_needed(name: str) -> bool:
    """Say whether a jar of PySpark's is one of the server's; native libraries are not."""
    return name.startswith(_PREFIXES) and ("native" not in name or "unix-common" in name)


def pinned() -> Pin:
    """Return the version and digests that a release pins. Raises JarsMissing."""
    found = re.search(
        r"^pyspark==(\S+) \\\n((?: +--hash=sha256:\w+[ \\]*\n?)+)", _read(_PINS), re.M
    )
    if found is None:
        raise JarsMissing(f"{_PINS} pins no pyspark: run `make pins`")
    return Pin(found[1], frozenset(re.findall(r"sha256:(\w+)", found[2])))


def fetch(
    folder: Path = FOLDER,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Read PySpark's package from the index that pip uses, keep the server's jars in `folder`.

    Returns their names. Raises JarsMissing: nothing was changed. `say` is told how far it is.
    """
    pin = pinned()
    index = _Index(environ)
    try:
        url, digest = _file_of(index, pin)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder.parent) as kept,
            index.open(url) as answer,
        ):
            jars = Path(kept) / "jars"
            jars.mkdir()
            names = _keep_jars(answer, jars, digest, say)
            shutil.rmtree(folder, ignore_errors=True)
            jars.rename(folder)
    except (OSError, tarfile.TarError, EOFError, ValueError) as error:
        raise JarsMissing(f"PySpark's package could not be read: {error}") from error
    return names


def _keep_jars(
    answer: IO[bytes], folder: Path, digest: str, say: Callable[[str], None]
) -> list[str]:
    size = int(getattr(answer, "headers", {}).get("Content-Length") or 0)
    stream = _Measured(answer, size, say)
    names: list[str] = []
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|gz") as package:
        for member in package:
            name = Path(member.name).name
            if not (member.isfile() and name.endswith(".jar") and is_needed(name)):
                continue
            content = package.extractfile(member)
            assert content is not None, "it is a file"
            (folder / name).write_bytes(content.read())
            names.append(name)
    while stream.read(_BLOCK):
        pass
    if stream.sha256.hexdigest() != digest:
        raise JarsMissing("PySpark's package is not the one that is pinned: its SHA-256 differs")
    if not any(name.startswith("zookeeper-jute") for name in names):
        raise JarsMissing("PySpark's package has no ZooKeeper server in it")
    return sorted(names)


class _Measured:
    """A stream that knows the digest of what was read, and tells how far it is."""

    def __init__(self, stream: IO[bytes], size: int, say: Callable[[str], None]) -> None:
        self.sha256 = hashlib.sha256()
        self._stream = stream
        self._size = size
        self._say = say
        self._count = 0
        self._told = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, none at the end."""
        block = self._stream.read(size)
        self.sha256.update(block)
        self._count += len(block)
        share = 100 * self._count // self._size if self._size else 0
        if share >= self._told + _STEP:
            self._told = share
            self._say(f"{share} % of {self._size >> 20} MB")
        return block


def _file_of(index: _Index, pin: Pin) -> tuple[str, str]:
    """Return address and SHA-256 of PySpark's source package. Raises JarsMissing, OSError."""
    place = f"{index.url.rstrip('/')}/pyspark/"
    with index.open(place, _LISTING) as answer:
        text = answer.read().decode()
        base = answer.geturl()  # type: ignore[attr-defined]
        is_json = "json" in (answer.headers.get("Content-Type") or "")  # type: ignore[attr-defined]
    if is_json:
        files = {
            one["url"]: one["hashes"].get("sha256", "")
            for one in json.loads(text)["files"]
            if one["filename"] == f"pyspark-{pin.version}.tar.gz"
        }
    else:
        name = re.escape(f"pyspark-{pin.version}.tar.gz")
        files = dict(re.findall(rf'href="([^"]*{name})#sha256=(\w+)"', text))
    for url, digest in files.items():
        if digest in pin.sha256:
            return urllib.parse.urljoin(base, url), digest
    raise JarsMissing(f"the index has no source package of pyspark {pin.version} that is pinned")


class _Index:
    """The index that pip is set to use, with its login and its certificates."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        found = environ.get("PIP_INDEX_URL") or _pip_setting("global.index-url") or _default()
        parts = urllib.parse.urlsplit(found)
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._netloc = parts.netloc.rpartition("@")[2]
        self._login = ""
        if parts.username:
            login = f"{parts.username}:{parts.password or ''}"
            self._login = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        self._tls = ssl.create_default_context()
        authorities = environ.get("PIP_CERT") or _pip_setting("global.cert")
        if authorities:
            self._tls.load_verify_locations(authorities)

    def open(self, url: str, accept: str = "*/*") -> IO[bytes]:
        """Ask for an address. Raises OSError."""
        headers = {"Accept": accept, "User-Agent": "quire"}
        if self._login and urllib.parse.urlsplit(url).netloc == self._netloc:
            headers["Authorization"] = f"Basic {self._login}"
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise OSError(f"{url} is no address of an index")
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  (scheme is checked)
        answer: IO[bytes] = urllib.request.urlopen(  # noqa: S310
            request, timeout=_TIMEOUT_S, context=self._tls
        )
        return answer


def _pip_setting(name: str) -> str:
    asked = [sys.executable, "-m", "pip", "config", "get", name]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip()


def _default() -> str:
    """Return the public index, which pip knows."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError as error:
        raise JarsMissing("set PIP_INDEX_URL to the index to use: there is no pip here") from error
    return str(PyPI.simple_url)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise JarsMissing(f"{path} cannot be read: {error.strerror}") from error


def main() -> int:
    """Fetch the jars unless they are there; return the exit code."""
    try:
        find_jars()
    except JarsMissing:
        pass
    else:
        return 0
    try:
        names = fetch(say=_say)
    except JarsMissing as error:
        sys.stderr.write(f"zookeeper: {error}\n")
        return 1
    _say(f"{len(names)} jars of the server are in {FOLDER}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"zookeeper: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

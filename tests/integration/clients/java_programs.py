"""The tests' own Java programs of one file each: compiled once in a run, with the jars they use."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ops.java import find_java
from tests.integration.clients import installed

# A small heap and the fast-starting compiler: these programs live for seconds.
_OPTIONS = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_COMPILER = ("-m", "jdk.compiler/com.sun.tools.javac.Main")
_SOURCES = {"java-3.9": "java", "java-4.4": "java"}
"""Folders of jars whose programs are in another one."""


def java_program(folder: str, name: str, *options: str) -> list[str]:
    """Return the command that runs a program with a folder's jars; its class comes last.

    `options`: more of the JVM's.
    """
    return [
        *(str(find_java().path), *_OPTIONS, *options),
        *("-cp", f"{_compiled(folder, name)}{os.pathsep}{_jars(folder)}", name),
    ]


def _jars(folder: str) -> str:
    return f"{installed.folder(f'{folder}/lib')}{os.sep}*"


@functools.cache
def _compiled(folder: str, name: str) -> Path:
    """Return the folder of a program's classes, which goes with this process."""
    classes = Path(tempfile.mkdtemp(prefix="quire-java-"))
    atexit.register(shutil.rmtree, classes, ignore_errors=True)
    jars = sorted(installed.folder(f"{folder}/lib").glob("*.jar"))
    source = installed.HERE / _SOURCES.get(folder, folder) / f"{name}.java"
    done = subprocess.run(
        [
            *(str(find_java().path), *_OPTIONS, *_COMPILER, "-nowarn", "-proc:none"),
            *("-cp", os.pathsep.join(map(str, jars)), "-d", str(classes), str(source)),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return classes

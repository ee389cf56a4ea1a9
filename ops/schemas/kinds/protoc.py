"""Reads Protobuf sources with Google's own compiler, in processes of its own that stay.

A process, because the compiler is C++ code that gets text of strangers: what it does with that
harms nobody else, and it has its time and its memory. It stays, because starting one costs a
hundred times what a schema costs. A process that dies, or is killed for its time, is replaced.

There without being registered, as Confluent's clients take for granted: `google/protobuf/...` (of
the compiler), `google/type/...` (of googleapis-common-protos) and `confluent/...` (in `protos`).
A dependency may also be a descriptor, as clients without sources send it.

    request   one line of JSON: the compiler's arguments
    answer    one line of JSON: [exit code, what it wrote to stderr]
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import json
import os
import queue
import re
import resource
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from ops.schemas.core.errors import InvalidSchema

BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Imports that nobody registers begin so."""

_PROCESSES_MAX: Final = 3
_TIMEOUT_S: Final = 20.0
_MEMORY_BYTES_MAX: Final = 1 << 30
"""Address space of a process; one that wants more ends, and the schema is refused."""
_KEPT_BYTES_MAX: Final = 32 << 20
"""Of descriptors that were compiled last: a registration asks for each some four times."""
_MAIN: Final = "quire_schema.proto"
"""What the schema itself is called; a reference may not have that name."""
_NOISE: Final = re.compile(r"WARNING: All log messages|[IWE]\d{4} ")


def compile_files(
    text: str, dependencies: Mapping[str, str | FileDescriptorProto]
) -> list[FileDescriptorProto]:
    """Return the descriptors of a source and of all that it imports, itself last.

    `dependencies`: import path -> source or descriptor. Raises InvalidSchema with the compiler's
    words.
    """
    key = _digest(text, dependencies)
    found = _kept.get(key)
    if found is None:
        found = _compile(text, dependencies)
        _kept.put(key, found)
    return list(FileDescriptorSet.FromString(found).file)


def _compile(text: str, dependencies: Mapping[str, str | FileDescriptorProto]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="quire-schema-") as folder:
        root = Path(folder, "sources")
        out = Path(folder, "descriptors")
        asked = [f"-I{root}", *(f"-I{path}" for path in _known_folders())]
        descriptors = FileDescriptorSet()
        for name, source in {**dependencies, _MAIN: text}.items():
            path = root / _checked(name)
            if isinstance(source, str):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(source, encoding="utf-8")
            else:
                descriptors.file.add().CopyFrom(source)
                descriptors.file[-1].name = name
        if descriptors.file:
            given = Path(folder, "given")
            given.write_bytes(descriptors.SerializeToString())
            asked.append(f"--descriptor_set_in={given}")
        asked += ["--include_imports", f"--descriptor_set_out={out}", _MAIN]
        code, told = _ask(asked)
        if code != 0:
            raise InvalidSchema(f"not a Protobuf schema: {_told(told, root)}")
        return out.read_bytes()


def decode_file(data: bytes) -> FileDescriptorProto:
    """Return a descriptor that was sent instead of a source. Raises InvalidSchema."""
    try:
        return FileDescriptorProto.FromString(data)
    except DecodeError as error:
        raise InvalidSchema("neither a Protobuf source nor a descriptor in base64") from error


def _known_folders() -> list[str]:
    folders = [importlib.resources.files("grpc_tools") / "_proto"]
    folders += [importlib.resources.files("google.type") / ".." / ".."]
    folders += [importlib.resources.files("ops.schemas.kinds") / "protos"]
    return [os.path.realpath(str(folder)) for folder in folders]


def _told(text: str, root: Path) -> str:
    """Return the compiler's errors, without its warnings and the names of our files."""
    lines = text.replace(f"{root}/", "").splitlines()
    told = [one.replace(_MAIN, "line") for one in lines if not _NOISE.match(one)]
    return "; ".join(told)[:2_000]


def _checked(name: str) -> str:
    """Return an import path, which may lead nowhere else. Raises InvalidSchema."""
    path = PurePosixPath(name)
    is_plain = name == str(path) and not path.is_absolute() and ".." not in path.parts
    if not is_plain or "\\" in name or "\0" in name or len(name) > 500:
        raise InvalidSchema(f"reference {name!r} is not an import path")
    return name


def _digest(text: str, dependencies: Mapping[str, str | FileDescriptorProto]) -> bytes:
    found = hashlib.sha256()
    for name, source in {**dependencies, _MAIN: text}.items():
        data = source.encode() if isinstance(source, str) else b"\0" + source.SerializeToString()
        found.update(b"%d %d " % (len(name.encode()), len(data)) + name.encode() + data)
    return found.digest()


class _Kept:
    """What was compiled last, by the digest of what it was compiled of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: bytes, compiled: bytes) -> None:
        with self._lock:
            if key in self._found:
                return
            self._found[key] = compiled
            self._bytes += len(compiled)
            while self._bytes > _KEPT_BYTES_MAX:
                _, oldest = self._found.popitem(last=False)
                self._bytes -= len(oldest)


class _Process:
    """A compiler that waits for sources. One thread at a time asks it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ops.schemas.kinds.protoc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # It finds what we have found, and nothing in the current folder.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def ask(self, arguments: list[str]) -> tuple[int, str]:
        """Return exit code and stderr. Raises InvalidSchema: the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        is_late = threading.Event()

        def kill() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(_TIMEOUT_S, kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(arguments) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            self.end()
            if is_late.is_set():
                raise InvalidSchema(f"the compiler did not end within {_TIMEOUT_S:g} s")
            raise InvalidSchema("the compiler ended while it read the schema")
        code, told = json.loads(line)
        return int(code), str(told)

    def end(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


_kept: Final = _Kept()
_waiting: Final[queue.LifoQueue[_Process | None]] = queue.LifoQueue()
"""Processes that wait, and a None for each that may be started."""
for _ in range(_PROCESSES_MAX):
    _waiting.put(None)


def _ask(arguments: list[str]) -> tuple[int, str]:
    process = _waiting.get()
    try:
        if process is None:
            process = _Process()
        answer = process.ask(arguments)
    except BaseException:
        _waiting.put(None)
        raise
    _waiting.put(process)
    return answer


def _serve() -> None:
    """Compile what is asked for, until nobody is there to ask."""
    from grpc_tools import protoc

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    with tempfile.TemporaryFile() as told:
        os.dup2(told.fileno(), 2)
        for line in sys.stdin:
            told.seek(0)
            told.truncate()
            code = protoc.main(["protoc", *json.loads(line)])
            told.seek(0)
            answers.write(json.dumps([code, told.read().decode(errors="replace")]) + "\n")
            answers.flush()


if __name__ == "__main__":
    _serve()

"""Reads Protobuf sources with Google's own compiler, in a process of its own.

A process, because the compiler is C++ code that gets text of strangers: what it does with that
harms nobody else, and it has its time. The well-known types (`google/protobuf/...`) are there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from ops.schemas.core.errors import InvalidSchema

_TIMEOUT_S: Final = 20.0
_MAIN: Final = "quire_schema.proto"
"""What the schema itself is called; a reference may not have that name."""
_NOISE: Final = re.compile(r"WARNING: All log messages|[IWE]\d{4} ")

_RUN: Final = (
    "import sys, importlib.resources, grpc_tools.protoc as p;"
    "known = str(importlib.resources.files('grpc_tools') / '_proto');"
    "sys.exit(p.main(['protoc', *sys.argv[1:], '-I' + known]))"
)


def compile_files(text: str, dependencies: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Return the descriptors of a source and of all that it imports, itself last.

    `dependencies`: import path -> source. Raises InvalidSchema with the compiler's words.
    """
    with tempfile.TemporaryDirectory(prefix="quire-schema-") as folder:
        root = Path(folder, "sources")
        for name, source in {**dependencies, _MAIN: text}.items():
            path = root / _checked(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        out = Path(folder, "descriptors")
        asked = ["-I" + str(root), "--include_imports", f"--descriptor_set_out={out}", _MAIN]
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and nothing of a client in the arguments
                [sys.executable, "-c", _RUN, *asked],
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"the compiler did not end within {_TIMEOUT_S:g} s") from None
        if done.returncode != 0:
            raise InvalidSchema(f"not a Protobuf schema: {_told(done.stderr, root)}")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def decode_file(data: bytes) -> FileDescriptorProto:
    """Return a descriptor that was sent instead of a source. Raises InvalidSchema."""
    try:
        return FileDescriptorProto.FromString(data)
    except DecodeError as error:
        raise InvalidSchema("neither a Protobuf source nor a descriptor in base64") from error


def _told(stderr: bytes, root: Path) -> str:
    """Return the compiler's errors, without its warnings and the names of our files."""
    lines = stderr.decode(errors="replace").replace(f"{root}/", "").splitlines()
    told = [one.replace(_MAIN, "line") for one in lines if not _NOISE.match(one)]
    return "; ".join(told)[:2_000]


def _checked(name: str) -> str:
    """Return an import path, which may lead nowhere else. Raises InvalidSchema."""
    path = PurePosixPath(name)
    is_plain = name == str(path) and not path.is_absolute() and ".." not in path.parts
    if not is_plain or "\\" in name or "\0" in name or len(name) > 500:
        raise InvalidSchema(f"reference {name!r} is not an import path")
    return name

"""Protobuf schemas: sources, or descriptors in base64 as clients without sources send them.

Stored is what was sent; whether two are the same is judged by their descriptors.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from ops.schemas.core.errors import INVALID_REQUEST, InvalidSchema, RegistryError
from ops.schemas.core.schema import Resolved
from ops.schemas.kinds.protobuf_rules import Files, differences
from ops.schemas.kinds.protoc import BUILT_IN, compile_files, decode_file


class ProtobufLanguage:
    """Protobuf, proto2 and proto3."""

    def canonical(self, schema: Resolved, *, normalize: bool) -> str:
        """Return the text as it is; normalized, its descriptor in base64."""
        files = _files(schema)
        return _base64(files[-1]) if normalize else schema.schema.text.strip()

    def check_new(self, schema: Resolved) -> None:
        """Nothing more is asked: `canonical` has read it."""

    def identity(self, schema: Resolved) -> object:
        """Return the descriptor without what depends on how it was sent."""
        return _bare(_files(schema)[-1]).SerializeToString(deterministic=True)

    def incompatibilities(self, *, reader: Resolved, writer: Resolved) -> Sequence[str]:
        """Return the changes of messages that Protobuf's wire format does not bear."""
        return differences(
            now=Files.of(_own(_files(reader))), before=Files.of(_own(_files(writer)))
        )

    def formatted(self, schema: Resolved, name: str) -> str:
        """Return it in format `serialized`: its descriptor in base64."""
        if name != "serialized":
            raise RegistryError(
                INVALID_REQUEST, f"format {name!r}: a Protobuf schema has serialized"
            )
        return _base64(_files(schema)[-1])


def _files(schema: Resolved) -> list[FileDescriptorProto]:
    """Return all descriptors, the schema's own last. Raises InvalidSchema."""
    own = _descriptor(schema.schema.text)
    if own is None:
        return compile_files(schema.schema.text, _read_all(schema.dependencies))
    files = [
        _dependency(name, text, schema.dependencies) for name, text in schema.dependencies.items()
    ]
    pool = DescriptorPool()
    try:
        for file in [*_well_known([*files, own]), *files, own]:
            pool.Add(file)
        for name in own.message_type[:1]:
            pool.FindMessageTypeByName(f"{own.package}.{name.name}".lstrip("."))
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"not a Protobuf schema: {error}") from error
    return [*files, own]


def _dependency(name: str, text: str, every: Mapping[str, str]) -> FileDescriptorProto:
    file = _descriptor(text)
    if file is None:
        earlier = dict(list(every.items())[: list(every).index(name)])
        file = compile_files(text, _read_all(earlier))[-1]
    file.name = name
    return file


def _read_all(dependencies: Mapping[str, str]) -> dict[str, str | FileDescriptorProto]:
    return {name: _descriptor(text) or text for name, text in dependencies.items()}


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return what a text in base64 holds; None for a source. Raises InvalidSchema."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return decode_file(data)


def _well_known(files: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    names = {one for file in files for one in file.dependency if one.startswith(BUILT_IN)}
    if not names:
        return []
    imports = "".join(f'import "{name}";\n' for name in sorted(names))
    return compile_files(f'syntax = "proto3";\n{imports}', {})[:-1]


def _own(files: Sequence[FileDescriptorProto]) -> Sequence[FileDescriptorProto]:
    return [one for one in files if not one.name.startswith(BUILT_IN)]


def _bare(file: FileDescriptorProto) -> FileDescriptorProto:
    found = FileDescriptorProto()
    found.CopyFrom(file)
    found.name = ""
    found.ClearField("source_code_info")
    if found.syntax == "proto2":
        found.ClearField("syntax")
    messages = list(found.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in (*message.field, *message.extension):
            if field.json_name == _default_json_name(field.name):
                field.ClearField("json_name")
    return found


def _default_json_name(name: str) -> str:
    """Return the name in JSON that the compiler gives a field: without underscores, what follows
    one in upper case."""
    first, *others = name.split("_")
    return first + "".join(one[:1].upper() + one[1:] for one in others)


def _base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()

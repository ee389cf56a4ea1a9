"""What the rules of Protobuf changes allow, written with the old messages and read with the new.

The judge is Protobuf's own library: an edit is harmful if some message of the old schema, with
values that both schemas can hold, reads as something else with the new one, or not at all. A
repeated string or message that turns singular reads as its last one, or as all merged: that is what
the language guide promises, and no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, permutations, product
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from ops.schemas.kinds.protobuf_rules import Files, differences

_SCALARS: Final[Mapping[str, int]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in F.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_GROUP", "TYPE_ENUM")
}
_VALUES: Final[Mapping[int, Sequence[Any]]] = {
    F.TYPE_BOOL: (True,),
    F.TYPE_STRING: ("a", "bc", "\b\1"),  # the last one reads as field 1 of a message
    F.TYPE_BYTES: (b"a", b"bc", b"\b\1"),
    F.TYPE_FLOAT: (1.0, 3.0),
    F.TYPE_DOUBLE: (1.0, 3.0),
    F.TYPE_ENUM: (1, 3),
}
_NUMBERS: Final = (1, 3, 100)
_FLOATS: Final = F.TYPE_FLOAT, F.TYPE_DOUBLE
_TEXTS: Final = F.TYPE_STRING, F.TYPE_BYTES
_SPANS: Final = F.TYPE_MESSAGE, F.TYPE_GROUP

_NEEDLESS: Final = frozenset(
    {
        "message type of the same fields",
        "member of a oneof gone",
        "list of numbers, not packed, to one",
        *(f"{one} to bool" for one in ("sint32", "sint64", "repeated sint32", "repeated sint64")),
    }
)
"""Edits that are refused although their bytes are read rightly: generated code notices the first
two, and the others are right by luck: a writer may pack, and a bool takes everything for true."""


class Edit(NamedTuple):
    """A change of message M."""

    name: str
    before: FileDescriptorProto
    now: FileDescriptorProto


def field(number: int, type_: int = F.TYPE_INT32, **more: Any) -> F:
    """Return a field, of a type whose name is given too where it needs one."""
    names = {F.TYPE_ENUM: ".x.E", F.TYPE_MESSAGE: ".x.A", F.TYPE_GROUP: ".x.M.G"}
    found: dict[str, Any] = {"name": f"f{number}", "number": number, "type": type_}
    found["label"] = F.LABEL_OPTIONAL
    if type_ in names:
        found["type_name"] = names[type_]
    if type_ == F.TYPE_GROUP:
        found["name"] = "g"
    return F(**{**found, **more})


def file(*fields: F, syntax: str = "proto2", oneofs: int = 0) -> FileDescriptorProto:
    """Return a file with message M of these fields, and what they may refer to."""
    found = FileDescriptorProto(name="m.proto", package="x", syntax=syntax)
    message = found.message_type.add(name="M", field=fields)
    message.nested_type.add(name="G", field=[field(1)])
    for one in fields:
        if one.type_name.startswith(".x.M.Map"):
            message.nested_type.append(_map_entry(one.type_name))
    for number in range(oneofs):
        message.oneof_decl.add(name=f"o{number}")
    for number, one in enumerate(one for one in message.field if one.proto3_optional):
        one.oneof_index = oneofs + number
        message.oneof_decl.add(name=f"_{one.name}")
    for name in ("A", "B"):
        found.message_type.add(name=name, field=[field(1), field(2, F.TYPE_STRING)])
    found.message_type.add(name="C", field=[field(1, F.TYPE_STRING)])
    values = found.enum_type.add(name="E").value
    for number in (0, *_NUMBERS):
        values.add(name=f"E{number}", number=number)
    return found


def map_of(key: int, value: int, **more: Any) -> F:
    """Return field 1, a map; the types of its keys and values stand in the name of its entry."""
    name = f".x.M.Map{key}_{value}Entry"
    return field(
        1, F.TYPE_MESSAGE, name=f"map{key}_{value}", type_name=name, label=F.LABEL_REPEATED, **more
    )


def _map_entry(type_name: str) -> DescriptorProto:
    short = type_name.rpartition(".")[2]
    key, value = short.removeprefix("Map").removesuffix("Entry").split("_")
    found = DescriptorProto(name=short)
    found.field.append(field(1, int(key), name="key"))
    found.field.append(field(2, int(value), name="value"))
    found.options.map_entry = True
    return found


# --- the edits ------------------------------------------------------------------------------------


def edits() -> Iterator[Edit]:
    """Return all edits that are tried."""
    yield from _types()
    yield from _labels()
    yield from _oneofs()
    yield from _maps()
    yield from _fields()


def _types() -> Iterator[Edit]:
    for (name, one), (other, two) in permutations(_SCALARS.items(), 2):
        yield Edit(f"{name} to {other}", file(field(1, one)), file(field(1, two)))
        if "string" not in (name, other) and "bytes" not in (name, other):
            lists = (file(field(1, type_, label=F.LABEL_REPEATED)) for type_ in (one, two))
            yield Edit(f"repeated {name} to {other}", *lists)
    for name, one in _SCALARS.items():
        for other, two in (("enum", F.TYPE_ENUM), ("message", F.TYPE_MESSAGE)):
            yield Edit(f"{name} to {other}", file(field(1, one)), file(field(1, two)))
            yield Edit(f"{other} to {name}", file(field(1, two)), file(field(1, one)))
    message, group = file(field(1, F.TYPE_MESSAGE)), file(field(1, F.TYPE_GROUP))
    yield Edit("message to group", message, group)
    yield Edit("group to message", group, message)
    for name, other in (("message type of the same fields", ".x.B"),
                        ("message type of other fields", ".x.C")):  # fmt: skip
        yield Edit(name, message, file(field(1, F.TYPE_MESSAGE, type_name=other)))


def _labels() -> Iterator[Edit]:
    labels = F.LABEL_OPTIONAL, F.LABEL_REQUIRED, F.LABEL_REPEATED
    types = {**_SCALARS, "enum": F.TYPE_ENUM, "message": F.TYPE_MESSAGE, "group": F.TYPE_GROUP}
    for (name, type_), (old, new) in product(types.items(), permutations(labels, 2)):
        both = [file(field(1, type_, label=label)) for label in (old, new)]
        if old == F.LABEL_REPEATED and type_ not in (*_TEXTS, *_SPANS):
            yield Edit("list of numbers, not packed, to one", *both)
            both[0].message_type[0].field[0].options.packed = True
        yield Edit(f"{name}: {F.Label.Name(old)} to {F.Label.Name(new)}", *both)
    for name, type_ in _SCALARS.items():
        plain = file(field(1, type_), syntax="proto3")
        optional = file(field(1, type_, proto3_optional=True), syntax="proto3")
        proto2 = file(field(1, type_))
        for one, other in permutations((plain, optional, proto2), 2):
            yield Edit(f"{name}: presence", one, other)
    for name, type_ in _SCALARS.items():
        if type_ not in _TEXTS:
            loose = file(field(1, type_, label=F.LABEL_REPEATED))
            packed = file(field(1, type_, label=F.LABEL_REPEATED))
            packed.message_type[0].field[0].options.packed = True
            yield Edit(f"{name}: packed", loose, packed)
            yield Edit(f"{name}: not packed any more", packed, loose)


def _oneofs() -> Iterator[Edit]:
    """Three fields, each in one of two oneofs or in none, before and after."""
    homes = None, 0, 1

    def of(places: Sequence[int | None]) -> FileDescriptorProto:
        fields = [
            field(n, F.TYPE_STRING, **({} if home is None else {"oneof_index": home}))
            for n, home in enumerate(places, 1)
        ]
        count = max((1 + home for home in places if home is not None), default=0)
        return file(*fields, oneofs=count)

    whole = [one for one in product(homes, repeat=3) if 1 not in one or 0 in one]
    for before, now in permutations(whole, 2):
        yield Edit(f"oneofs {before} to {now}", of(before), of(now))
    for count in (1, 2):
        for kept in combinations((1, 2, 3), count):
            fields = [field(n, F.TYPE_STRING, oneof_index=0) for n in kept]
            yield Edit("member of a oneof gone", of((0, 0, 0)), file(*fields, oneofs=1))
            yield Edit("member of a oneof new", file(*fields, oneofs=1), of((0, 0, 0)))


def _maps() -> Iterator[Edit]:
    keys = F.TYPE_STRING, F.TYPE_INT32, F.TYPE_INT64, F.TYPE_SINT32, F.TYPE_FIXED32
    values = F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_UINT32, F.TYPE_BOOL, F.TYPE_DOUBLE, F.TYPE_MESSAGE
    for (key, value), (new_key, new_value) in permutations(product(keys, values), 2):
        if key == new_key or value == new_value:
            both = file(map_of(key, value)), file(map_of(new_key, new_value))
            yield Edit("map of other types", *both)
    yield Edit("map to string", file(map_of(*keys[:2])), file(field(1, F.TYPE_STRING)))


def _fields() -> Iterator[Edit]:
    for name, type_ in {**_SCALARS, "message": F.TYPE_MESSAGE}.items():
        less, more = file(field(1)), file(field(1), field(2, type_))
        needed = file(field(1), field(2, type_, label=F.LABEL_REQUIRED))
        yield Edit(f"{name} new", less, more)
        yield Edit(f"{name} gone", more, less)
        yield Edit(f"required {name} new", less, needed)
        yield Edit(f"{name} renamed", more, file(field(1), field(2, type_, name="other")))
        yield Edit(f"{name} with another number", more, file(field(1), field(3, type_)))


# --- the judge ------------------------------------------------------------------------------------


def harm(edit: Edit) -> str:
    """Return what is read wrongly after an edit; "": nothing that was found."""
    write, read = _class(edit.before), _class(edit.now)
    for fill in _fillings(edit.before.message_type[0], edit.now.message_type[0]):
        old, new = write(), read()
        try:
            fill(old)
            data = old.SerializeToString()
        except EncodeError:
            continue  # a required field is missing: nobody could have written that
        try:
            new.ParseFromString(data)
        except DecodeError as error:
            return f"{old} cannot be read: {error}"
        if not new.IsInitialized():
            return f"{old} lacks what is required"
        for ours in new.DESCRIPTOR.fields:
            theirs = old.DESCRIPTOR.fields_by_number.get(ours.number)
            if theirs is not None and not _is_same(new, ours, old, theirs):
                return f"{old} is read as {new}"
    return ""


def _class(file_: FileDescriptorProto) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_)
    return GetMessageClass(pool.FindMessageTypeByName("x.M"))


def _fillings(before: DescriptorProto, now: DescriptorProto) -> Iterator[Callable[[Any], None]]:
    """Return what sets fields of an old message: none, each alone, all, all from the last on."""
    yield _setter({})
    found = {one.number: one for one in now.field}
    values = {
        one.number: _values(before, one, now, found.get(one.number, one)) for one in before.field
    }
    for count in range(max(map(len, values.values()), default=0)):
        chosen = {number: some[count % len(some)] for number, some in values.items() if some}
        yield from (_setter({number: value}) for number, value in chosen.items())
        yield _setter(chosen)
        yield _setter(dict(reversed(chosen.items())))


def _values(before: DescriptorProto, field_: F, now: DescriptorProto, new: F) -> Sequence[Any]:
    """Return values of a field that its new type can hold as well, in a list if it is repeated."""
    entries = {f".x.M.{one.name}": one for one in (*before.nested_type, *now.nested_type)}
    entry, new_entry = entries.get(field_.type_name), entries.get(new.type_name)
    if entry is not None and entry.options.map_entry:
        if new_entry is None or not new_entry.options.map_entry:
            new_entry = entry
        keys, values = (
            _singles(old, new) for old, new in zip(entry.field, new_entry.field, strict=True)
        )
        return [{key: value} for key in keys for value in values]
    singles = _singles(field_, new)
    if field_.label != F.LABEL_REPEATED:
        return singles
    return [[one] for one in singles] + [list(singles)]


def _singles(field_: F, new: F) -> Sequence[Any]:
    old = field_.type
    if old in _SPANS:
        return [{1: 5}] if old == F.TYPE_GROUP else [{1: 5}, {1: 5, 2: "t"}]
    values = _VALUES.get(old, _NUMBERS)
    if new.type == F.TYPE_BOOL:
        return [one for one in values if one == 1] or values
    return values


def _setter(values: Mapping[int, Any]) -> Callable[[Any], None]:
    def fill(message: Any) -> None:
        for number, value in values.items():
            name = message.DESCRIPTOR.fields_by_number[number].name
            place = getattr(message, name)
            if isinstance(value, dict) and not hasattr(place, "keys"):
                place.SetInParent()
                _setter(value)(place)
            elif isinstance(value, dict):
                for key, each in value.items():
                    _setter(each)(place[key]) if isinstance(each, dict) else place.update(value)
            elif isinstance(value, list):
                for each in value:
                    _setter(each)(place.add()) if isinstance(each, dict) else place.append(each)
            else:
                setattr(message, name, value)

    return fill


def _is_same(new: Any, ours: Any, old: Any, theirs: Any) -> bool:
    mine, written = getattr(new, ours.name), getattr(old, theirs.name)
    if hasattr(mine, "keys") and hasattr(written, "keys"):
        return {_plain(key): _plain(one) for key, one in mine.items()} == {
            _plain(key): _plain(one) for key, one in written.items()
        }
    if hasattr(written, "keys"):
        return False  # pairs of a map are nobody else's messages
    is_list, was_list = ours.is_repeated, theirs.is_repeated
    if is_list and not was_list:
        written = (
            [written]
            if theirs.has_presence and old.HasField(theirs.name)
            else ([] if theirs.has_presence or written == theirs.default_value else [written])
        )
    if is_list:
        return [_plain(one) for one in mine] == [_plain(one) for one in written]
    if was_list:
        return not written or _plain(mine) == _plain(_last(written))
    if ours.has_presence and theirs.has_presence:
        if new.HasField(ours.name) != old.HasField(theirs.name):
            return False
        if not old.HasField(theirs.name):
            return True
    return _plain(mine) == _plain(written)


def _last(written: Sequence[Any]) -> Any:
    """Return what a singular field makes of a repeated one."""
    if not hasattr(written[0], "MergeFrom"):
        return written[-1]
    merged = type(written[0])()
    for one in written:
        merged.MergeFrom(one)
    return merged


def _plain(value: Any) -> Any:
    """Return a value so that those of different classes, or of types of one encoding, compare."""
    if hasattr(value, "ListFields"):
        return {one.number: _plain(each) for one, each in value.ListFields()}
    return value.encode() if isinstance(value, str) else value


# --- the tests ------------------------------------------------------------------------------------


def _refusals(edit: Edit) -> list[str]:
    return differences(now=Files.of([edit.now]), before=Files.of([edit.before]))


def test_what_is_allowed_does_no_harm() -> None:
    wrong = [
        f"{edit.name}: {found}" for edit in edits() if not _refusals(edit) and (found := harm(edit))
    ]
    assert wrong == []


def test_what_is_refused_does_harm() -> None:
    """All but a few, by name."""
    needless = [
        f"{edit.name}: {found}"
        for edit in edits()
        if (found := _refusals(edit)) and edit.name not in _NEEDLESS and not harm(edit)
    ]
    assert needless == []


def test_there_are_enough_of_them() -> None:
    """As many as were tried beside Confluent's registry, and all pairs of scalar types."""
    found = list(edits())
    pairs = {edit.name for edit in found if edit.name.split()[0] in _SCALARS}
    wanted = {f"{one} to {two}" for one, two in permutations(_SCALARS, 2)}
    assert len(found) >= 309 and len(wanted) == 210 and wanted <= pairs

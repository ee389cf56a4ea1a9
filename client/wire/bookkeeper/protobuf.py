"""BookKeeper's protobuf messages, built from a table at import instead of generated files.

Covers protobuf field numbers: the v3 wire messages and the records that BookKeeper keeps in
ZooKeeper (ledger metadata, cookies, bookie service info, auto recovery).

The table has one message or enum per line: `name: field=number type`, where a type ends in `!`
when the field is required and in `*` when it is repeated. Two deliberate differences from the
published .proto files, neither visible on the wire:

- enums of the v3 messages are plain int32, so that a number we do not know survives parsing
  and can be answered instead of being dropped;
- `properties` of the service info is a repeated key/value message, which is what a protobuf map
  is on the wire.

Callers construct and read messages by attribute; the classes are made at run time, so they are
typed `Any`. Check `IsInitialized()` after parsing: required fields are not checked before.

Sources: Apache BookKeeper `BookkeeperProtocol.proto`, `DataFormats.proto`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.unknown_fields import UnknownFieldSet

_FILE: Final = "quire/bookkeeper.proto"

_ENUMS: Final = """
LedgerState: OPEN=1 IN_RECOVERY=2 CLOSED=3
LedgerDigestType: CRC32=1 HMAC=2 CRC32C=3 DUMMY=4
"""

_MESSAGES: Final = """
BKPacketHeader: version=1 int32! operation=2 int32! txnId=3 uint64! priority=4 uint32
ContextPair: key=1 string! value=2 string!
ReadRequest: ledgerId=1 int64! entryId=2 int64! masterKey=3 bytes previousLAC=4 int64 \
    timeOut=5 int64 flag=100 int32
AddRequest: ledgerId=1 int64! entryId=2 int64! masterKey=3 bytes! body=4 bytes! \
    writeFlags=5 int32 flag=100 int32
AuthMessage: authPluginName=1 string! payload=2 bytes!
WriteLacRequest: ledgerId=1 int64! lac=2 int64! masterKey=3 bytes! body=4 bytes!
ReadLacRequest: ledgerId=1 int64!
GetBookieInfoRequest: requested=1 int64
StartTLSRequest:
ForceLedgerRequest: ledgerId=1 int64!
GetListOfEntriesOfLedgerRequest: ledgerId=1 int64!
Request: header=1 BKPacketHeader! readRequest=100 ReadRequest addRequest=101 AddRequest \
    authRequest=102 AuthMessage writeLacRequest=103 WriteLacRequest \
    readLacRequest=104 ReadLacRequest getBookieInfoRequest=105 GetBookieInfoRequest \
    startTLSRequest=106 StartTLSRequest forceLedgerRequest=107 ForceLedgerRequest \
    getListOfEntriesOfLedgerRequest=108 GetListOfEntriesOfLedgerRequest \
    requestContext=200 ContextPair*
ReadResponse: status=1 int32! ledgerId=2 int64! entryId=3 int64! body=4 bytes maxLAC=5 int64 \
    lacUpdateTimestamp=6 int64
AddResponse: status=1 int32! ledgerId=2 int64! entryId=3 int64!
WriteLacResponse: status=1 int32! ledgerId=2 int64!
ReadLacResponse: status=1 int32! ledgerId=2 int64! lacBody=3 bytes lastEntryBody=4 bytes
GetBookieInfoResponse: status=1 int32! totalDiskCapacity=2 int64 freeDiskSpace=3 int64
StartTLSResponse:
ForceLedgerResponse: status=1 int32! ledgerId=2 int64!
GetListOfEntriesOfLedgerResponse: status=1 int32! ledgerId=2 int64! \
    availabilityOfEntriesOfLedger=3 bytes
Response: header=1 BKPacketHeader! status=2 int32! readResponse=100 ReadResponse \
    addResponse=101 AddResponse authResponse=102 AuthMessage \
    writeLacResponse=103 WriteLacResponse readLacResponse=104 ReadLacResponse \
    getBookieInfoResponse=105 GetBookieInfoResponse startTLSResponse=106 StartTLSResponse \
    forceLedgerResponse=107 ForceLedgerResponse \
    getListOfEntriesOfLedgerResponse=108 GetListOfEntriesOfLedgerResponse
LedgerSegment: ensembleMember=1 string* firstEntryId=2 int64!
LedgerMetadataEntry: key=1 string value=2 bytes
LedgerMetadataFormat: quorumSize=1 int32! ensembleSize=2 int32! length=3 int64! \
    lastEntryId=4 int64 state=5 LedgerState! segment=6 LedgerSegment* \
    digestType=7 LedgerDigestType password=8 bytes ackQuorumSize=9 int32 ctime=10 int64 \
    customMetadata=11 LedgerMetadataEntry* cToken=12 int64
CookieFormat: bookieHost=1 string! journalDir=2 string! ledgerDirs=3 string! \
    instanceId=4 string indexDirs=5 string
BookieEndpoint: id=1 string! port=2 int32! host=3 string! protocol=4 string! auth=5 string* \
    extensions=6 string*
BookieProperty: key=1 string value=2 string
BookieServiceInfoFormat: endpoints=6 BookieEndpoint* properties=7 BookieProperty*
LedgerRereplicationLayoutFormat: type=1 string! version=2 int32!
UnderreplicatedLedgerFormat: replica=1 string* ctime=2 int64
LockDataFormat: bookieId=1 string
AuditorVoteFormat: bookieId=1 string
CheckAllLedgersFormat: checkAllLedgersCTime=1 int64
PlacementPolicyCheckFormat: placementPolicyCheckCTime=1 int64
ReplicasCheckFormat: replicasCheckCTime=1 int64
"""


def parse_text(data: bytes, message: Any) -> None:
    """Fill a message from its text form; fields that we do not know are passed over.

    Raises ValueError, also for text that is nested without end. It says where and not what: a
    ledger's password may stand there.
    """
    try:
        text_format.Parse(data.decode(), message, allow_unknown_field=True)
    except text_format.ParseError as error:
        where = f"line {error.GetLine()}, column {error.GetColumn()}"
        raise ValueError(f"no protobuf text at {where}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def unknown_bytes(message: Any) -> bytes:
    """Return the fields of a message that was parsed from bytes and that we do not know.

    `MergeFromString` puts them into another one. Those of messages within it are theirs.
    """
    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for known, _ in message.ListFields():
        rest.ClearField(known.name)
    found: bytes = rest.SerializePartialToString()
    return found


def unknown_text(data: bytes, message: Any) -> bytes:
    """Return the lines of a message's text that are fields which we do not know, to be added to its
    text again. As everybody prints it, each field of the message begins a line of its own; of a
    text that is written otherwise nothing is kept.
    """
    found: list[bytes] = []
    is_unknown = False
    for line in data.splitlines(keepends=True):
        if (name := _NAME.match(line)) is not None:
            is_unknown = name[0].decode() not in message.DESCRIPTOR.fields_by_name
        if is_unknown:
            found.append(line)
    rest = type(message)()
    try:
        parse_text(b"".join(found), rest)
    except ValueError:
        return b""
    return b"" if rest.ListFields() else b"".join(found)


_NAME: Final = re.compile(rb"[A-Za-z_]\w*")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}
_LABELS: Final = {"!": _Field.LABEL_REQUIRED, "*": _Field.LABEL_REPEATED}


def _describe(enums: str, messages: str) -> descriptor_pb2.FileDescriptorProto:
    """Turn the two tables into a file descriptor."""
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, syntax="proto2")
    for line in enums.strip().splitlines():
        name, _, values = line.partition(":")
        enum = file.enum_type.add(name=name)
        for value in values.split():
            label, _, number = value.partition("=")
            enum.value.add(name=label, number=int(number))
    enum_names = {enum.name for enum in file.enum_type}
    for line in messages.strip().splitlines():
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        words = fields.split()
        for field, kind in zip(words[::2], words[1::2], strict=True):
            _add_field(message, field, kind, enum_names)
    return file


def _add_field(
    message: descriptor_pb2.DescriptorProto, field: str, kind: str, enum_names: set[str]
) -> None:
    name, _, number = field.partition("=")
    label = _LABELS.get(kind[-1], _Field.LABEL_OPTIONAL)
    kind = kind.rstrip("!*")
    added = message.field.add(name=name, number=int(number), label=label)
    if kind in _SCALARS:
        added.type = _SCALARS[kind]
    else:
        added.type = _Field.TYPE_ENUM if kind in enum_names else _Field.TYPE_MESSAGE
        added.type_name = f".{kind}"


def _build() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    file = _describe(_ENUMS, _MESSAGES)
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(message.name))
        for message in file.message_type
    }


_classes: Final = _build()

Request: Final[Any] = _classes["Request"]
Response: Final[Any] = _classes["Response"]
AuthMessage: Final[Any] = _classes["AuthMessage"]

LedgerMetadataFormat: Final[Any] = _classes["LedgerMetadataFormat"]
CookieFormat: Final[Any] = _classes["CookieFormat"]
BookieServiceInfoFormat: Final[Any] = _classes["BookieServiceInfoFormat"]

LedgerRereplicationLayoutFormat: Final[Any] = _classes["LedgerRereplicationLayoutFormat"]
UnderreplicatedLedgerFormat: Final[Any] = _classes["UnderreplicatedLedgerFormat"]
LockDataFormat: Final[Any] = _classes["LockDataFormat"]
AuditorVoteFormat: Final[Any] = _classes["AuditorVoteFormat"]
CheckAllLedgersFormat: Final[Any] = _classes["CheckAllLedgersFormat"]
PlacementPolicyCheckFormat: Final[Any] = _classes["PlacementPolicyCheckFormat"]
ReplicasCheckFormat: Final[Any] = _classes["ReplicasCheckFormat"]

"""Versions of Kafka 4.4 that kio has no classes of yet, declared as kio declares its own.

`apis.py` looks here first. A version goes as soon as kio has it: a test asks for that.

    ApiVersions 5        the request says which cluster and node the client wants (KIP-1242)
    TxnOffsetCommit 6    topics have ids instead of names (KIP-1319)
    DeleteGroups 3       the response has a message beside each error code

Source: the schemas of the message classes in kafka-clients 4.4.0.
"""
# Types stay what they are, because kio reads them: no `from __future__ import annotations`.

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.schema.api_versions.v4.response import ApiVersionsResponse as ApiVersionsResponseV4
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest as DeleteGroupsRequestV2
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v10.request import OffsetCommitRequestTopic
from kio.schema.offset_commit.v10.response import OffsetCommitResponseTopic
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import GroupId, ProducerId, TransactionalId
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta

_STRING: Final[Mapping[str, str]] = {"kafka_type": "string"}
_INT16: Final[Mapping[str, str]] = {"kafka_type": "int16"}
_INT32: Final[Mapping[str, str]] = {"kafka_type": "int32"}
_INT64: Final[Mapping[str, str]] = {"kafka_type": "int64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """Version 5."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(5)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(18)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    client_software_name: str = field(metadata=_STRING)
    client_software_version: str = field(metadata=_STRING)
    cluster_id: str | None = field(metadata=_STRING, default=None)
    """What the client was told of the cluster; None: it does not ask for a check."""
    node_id: i32 = field(metadata=_INT32, default=i32(-1))
    """Which broker it wants to talk to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse(ApiVersionsResponseV4):
    """Version 5, which has the fields of version 4."""

    __version__: ClassVar[i16] = i16(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    """Version 6, whose topics are those of OffsetCommit 10."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(6)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(28)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    transactional_id: TransactionalId = field(metadata=_STRING)
    group_id: GroupId = field(metadata=_STRING)
    producer_id: ProducerId = field(metadata=_INT64)
    producer_epoch: i16 = field(metadata=_INT16)
    generation_id_or_member_epoch: i32 = field(metadata=_INT32, default=i32(-1))
    member_id: str = field(metadata=_STRING, default="")
    group_instance_id: str | None = field(metadata=_STRING, default=None)
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    """Version 6, whose topics are those of OffsetCommit 10."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(6)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(28)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[OffsetCommitResponseTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest(DeleteGroupsRequestV2):
    """Version 3, which has the fields of version 2."""

    __version__: ClassVar[i16] = i16(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    """What became of one group."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(3)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(42)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    group_id: GroupId = field(metadata=_STRING)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata=_STRING, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    """Version 3."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(3)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(42)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DeletableGroupResult, ...]


REQUESTS: Final[Mapping[tuple[int, int], Any]] = {
    (int(one.__api_key__), int(one.__version__)): one
    for one in (ApiVersionsRequest, TxnOffsetCommitRequest, DeleteGroupsRequest)
}
RESPONSES: Final[Mapping[tuple[int, int], Any]] = {
    (int(one.__api_key__), int(one.__version__)): one
    for one in (ApiVersionsResponse, TxnOffsetCommitResponse, DeleteGroupsResponse)
}
"""By API key and version."""

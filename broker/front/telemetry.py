"""Metrics that clients push (KIP-714): whose they are, which are wanted, and how they are read.

A push is OpenTelemetry's MetricsData, in Protocol Buffers. Of a histogram its count and its sum are
taken, as metrics of those names. Source: OTLP 1.x as the package opentelemetry-proto has it, which
is imported when the first client pushes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker.front.core.client_telemetry import Who
from broker.front.services import Call, Services
from broker.settings.core.client_metrics import Wanted
from client.errors import RemoteProtocolError
from client.wire.kafka.batches.records import Buffer

NOBODY: Final = UUID(int=0)

_NAME_CHARS_MAX: Final = 150
_ATTRIBUTES_CHARS_MAX: Final = 250


def who(services: Services, call: Call) -> Who:
    """Return how a client's metrics are labelled."""
    software = " ".join(filter(None, services.telemetry.software(call.connection)))
    return Who(call.client_id or "", software)


def wanted(services: Services, call: Call, instance_id: UUID) -> Wanted:
    """Return what is wanted of a client."""
    name, version = services.telemetry.software(call.connection)
    return services.subscriptions.wanted(
        {
            "client_instance_id": str(instance_id),
            "client_id": call.client_id or "",
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": call.peer.host,
            "client_source_port": str(call.peer.port),
        }
    )


class Point(NamedTuple):
    """One value."""

    metric: str
    attributes: str
    """`name=value` of each, sorted, with commas between."""
    value: float


def points(data: Buffer) -> Iterator[Point]:
    """Yield the values of a push. Raises RemoteProtocolError for bytes that are none."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        found = MetricsData.FromString(bytes(data))
    except DecodeError as error:
        raise RemoteProtocolError(f"malformed metrics: {error}") from error
    for resource in found.resource_metrics:
        of_client = list(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _of_metric(metric, of_client)


def _of_metric(metric: Any, of_client: Sequence[Any]) -> Iterator[Point]:
    kind, name = metric.WhichOneof("data"), metric.name[:_NAME_CHARS_MAX]
    if kind in ("gauge", "sum"):
        for point in getattr(metric, kind).data_points:
            which = point.WhichOneof("value")
            if which is not None:
                yield from _point(name, point, of_client, getattr(point, which))
    elif kind in ("histogram", "exponential_histogram", "summary"):
        for point in getattr(metric, kind).data_points:
            yield from _point(f"{name}.count", point, of_client, point.count)
            yield from _point(f"{name}.sum", point, of_client, point.sum)


def _point(name: str, point: Any, of_client: Sequence[Any], value: float) -> Iterator[Point]:
    if math.isfinite(value):  # a client's average over nothing is none
        pairs = sorted(f"{one.key}={_text(one.value)}" for one in (*of_client, *point.attributes))
        yield Point(name, ",".join(pairs)[:_ATTRIBUTES_CHARS_MAX], float(value))


def _text(value: Any) -> str:
    which = value.WhichOneof("value")
    if which in ("string_value", "int_value", "double_value", "bool_value"):
        return str(getattr(value, which))
    return ""

"""/audit: who did what to the cluster, and who was not allowed to, as brokers remember it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from broker.admin.audit_trail import EVENTS
from broker.admin.context import AdminContext, at_broker
from broker.admin.operation import Operation, Role
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.schema import Schema, list_of, map_of, record, ref, text, whole

_LIMIT_MAX: Final = 2_000

SCHEMAS: Final[Mapping[str, Schema]] = {
    "AuditEntry": record(
        "Something that was done, or refused.",
        {
            "time_ms": whole("When, the last time."),
            "broker_id": whole("The broker that saw it."),
            "event": text("Name of the event in its log.", enum=[*EVENTS]),
            "user": text("Who: a user, a token's name or that of a certificate; empty: unknown."),
            "address": text("From where."),
            "what": text("What it was about."),
            "count": whole("How often, if it was refused; equal ones in a row are one entry."),
        },
    ),
    "Audit": record(
        "What brokers remember, the newest first.",
        {
            "items": list_of(ref("AuditEntry"), "Entries."),
            "silent": map_of(text("Why."), "Brokers that could not be reached."),
        },
    ),
}
_QUERY: Final = {
    "limit": whole("How many entries at most.", 1, _LIMIT_MAX, default=200),
}


async def describe_audit(context: AdminContext, request: AdminRequest) -> Answer:
    """Show what all brokers remember."""
    limit = request.query["limit"]
    others = await context.peer_client.ask_all(
        lambda broker: f"/brokers/{broker.id}/audit", {"limit": str(limit)}
    )
    items = [*_own(context, limit)]
    for answer in others.answers.values():
        items += answer["items"]
    items.sort(key=lambda entry: -int(entry["time_ms"]))
    silent = {str(broker): why for broker, why in others.silent.items()}
    return Answer({"items": items[:limit], "silent": silent})


async def describe_broker_audit(context: AdminContext, request: AdminRequest) -> Answer:
    """Show what one broker remembers."""
    return Answer({"items": [*_own(context, request.query["limit"])], "silent": {}})


def _own(context: AdminContext, limit: int) -> Iterator[dict[str, Any]]:
    for entry in islice(context.audit_trail.entries(), limit):
        yield {**entry, "broker_id": context.me}


OPERATIONS: Final = (
    Operation(
        name="describe_audit", role=Role.ADMINISTER, method="GET", path="/audit",
        summary="Show who did what, and who was not allowed to, newest first.",
        handle=describe_audit, query=_QUERY, gives={JSON: ref("Audit")},
    ),
    Operation(
        name="describe_broker_audit", role=Role.ADMINISTER, method="GET",
        path="/brokers/{broker_id}/audit", summary="Show what one broker remembers of that.",
        handle=describe_broker_audit, where=at_broker, query=_QUERY, gives={JSON: ref("Audit")},
        problems=(404,),
    ),
)  # fmt: skip

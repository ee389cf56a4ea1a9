"""/transactions: who has a transaction open, since when, and an operator's abort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.context import AdminContext, at_broker
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, SILENT, merged_page, page
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.schema import Schema, list_of, nullable, number, record, ref, text, whole
from broker.cluster.core.topology import BrokerInfo
from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from broker.errors import CoordinatorNotAvailable, NotCoordinator, TransactionalIdNotFound
from broker.transactions.core.transaction import (
    NO_TIME,
    PREPARED,
    STATE_NAMES,
    Client,
    TransactionMetadata,
    TransactionState,
)

_NAMES: Final = [
    STATE_NAMES[state] for state in TransactionState if state <= TransactionState.COMPLETE_ABORT
]
_ROW: Final = {
    "transactional_id": text("What the producer calls itself."),
    "state": text("Kafka's name of its state.", enum=_NAMES),
    "producer_id": whole("Its producer id."),
    "producer_epoch": whole("The epoch of its present incarnation, or transaction."),
    "timeout_ms": whole("After how long its transactions are aborted."),
    "number": whole("How many transactions it has begun."),
    "started_ms": nullable(whole("When the last one began; null: none did.")),
    "open_seconds": nullable(
        number("How long it has been open, or has lacked markers; null: neither.")
    ),
    "partition_count": whole("Partitions in it; once it is decided, those without a marker."),
    "client_id": nullable(text("What the client calls itself; null: not seen since a takeover.")),
    "client_host": nullable(text("The address that it last connected from.")),
    "coordinator": whole("The broker that coordinates it."),
}  # fmt: skip
SCHEMAS: Final[Mapping[str, Schema]] = {
    "TransactionRow": record("A transactional id in short.", _ROW),
    "TransactionPage": record(
        "Transactional ids by name.",
        {
            "items": list_of(ref("TransactionRow"), "What was asked for, in order."),
            "next": nullable(text("Pass it as `after` to continue; null: this was the last page.")),
            SILENT: list_of(whole("A broker."), "Brokers whose ids are missing here."),
        },
    ),
    "Transaction": record(
        "A transactional id.",
        {
            **_ROW,
            "updated_ms": whole("When it changed last.", -1),
            "partitions": list_of(
                record(
                    "A partition.",
                    {"topic": text("The topic."), "partition": whole("The partition.")},
                ),
                "Those of the transaction; once it is decided, those without a marker.",
            ),
        },
    ),
}


async def list_coordinated(context: AdminContext, request: AdminRequest) -> Answer:
    """List the transactional ids that this broker coordinates."""
    state, open_seconds = request.query.get("state"), request.query.get("open_seconds", 0)
    pace = context.broker.services.turns.pace()
    rows = []
    for coordinator in context.broker.transactions.coordinators():
        try:
            view = coordinator.view()
        except NotCoordinator:
            continue  # whoever coordinates them now lists them
        for transactional_id in view.ids():
            await pace.item()
            stored = view.describe(transactional_id)
            if stored is None:
                continue
            row = _row(context, transactional_id, stored, view.client(transactional_id))
            if (state is None or row["state"] == state) and (
                not open_seconds or (row["open_seconds"] or 0) >= open_seconds
            ):
                rows.append(row)
    rows.sort(key=_name)
    answer = await page(context.broker.services.turns, rows, request.query, _name, lambda row: row)
    answer.body[SILENT] = []
    return answer


async def list_transactions(context: AdminContext, request: AdminRequest) -> Answer:
    """List the transactional ids of all brokers."""
    return await merged_page(context, request, "transactions", list_coordinated, "transactional_id")


async def describe_transaction(context: AdminContext, request: AdminRequest) -> Answer:
    """Describe a transactional id."""
    name = request.path["transaction"]
    view = context.broker.transactions.coordinator(name).view()
    stored = view.describe(name)
    if stored is None:
        raise TransactionalIdNotFound(f"there is no transactional id {name!r}")
    return Answer(_whole(context, name, stored, view.client(name)))


async def abort_transaction(context: AdminContext, request: AdminRequest) -> Answer:
    """Abort an open transaction and fence its producer."""
    name = request.path["transaction"]
    coordinator = context.broker.transactions.coordinator(name)
    client = coordinator.view().client(name)
    return Answer(_whole(context, name, await coordinator.abort(name), client))


async def _at_coordinator(context: AdminContext, request: AdminRequest) -> BrokerInfo | None:
    """The coordinator of the id that the path names; creates no internal topic."""
    name = request.path["transaction"]
    if await context.broker.cluster.look_for_topic(TRANSACTIONS_TOPIC) is None:
        raise TransactionalIdNotFound(f"there is no transactional id {name!r}")
    leader = context.broker.transactions.leader(name)
    if leader is None:
        raise CoordinatorNotAvailable(f"no broker coordinates {name!r} at the moment")
    return leader


def _row(
    context: AdminContext, name: str, stored: TransactionMetadata, client: Client | None
) -> dict[str, Any]:
    is_open = stored.state is TransactionState.ONGOING or stored.state in PREPARED
    open_ms = context.lags.now_ms() - stored.start_ms
    return {
        "transactional_id": name,
        "state": STATE_NAMES[stored.state],
        "producer_id": stored.producer_id,
        "producer_epoch": stored.epoch,
        "timeout_ms": stored.timeout_ms,
        "number": stored.number,
        "started_ms": None if stored.start_ms == NO_TIME else stored.start_ms,
        "open_seconds": max(open_ms, 0) / 1000 if is_open else None,
        "partition_count": len(stored.partitions),
        "client_id": None if client is None else client.client_id,
        "client_host": None if client is None else client.host,
        "coordinator": context.me,
    }


def _whole(
    context: AdminContext, name: str, stored: TransactionMetadata, client: Client | None
) -> dict[str, Any]:
    return {
        **_row(context, name, stored, client),
        "updated_ms": stored.updated_ms,
        "partitions": [
            {"topic": one.topic, "partition": one.partition} for one in stored.partitions
        ],
    }


def _name(row: Mapping[str, Any]) -> str:
    return str(row["transactional_id"])


_LISTED: Final[Mapping[str, Schema]] = {
    **QUERY,
    "state": text("Only those in this state.", enum=_NAMES),
    "open_seconds": whole("Only those whose transaction has been open for this long."),
}
OPERATIONS: Final = (
    Operation(
        name="list_transactions", role=Role.LOOK, method="GET", path="/transactions",
        summary="List the transactional ids.", handle=list_transactions, query=_LISTED,
        gives={JSON: ref("TransactionPage")},
    ),
    Operation(
        name="describe_transaction", role=Role.LOOK,
        method="GET", path="/transactions/{transaction}",
        summary="Describe a transactional id: its transaction, partitions, client.",
        handle=describe_transaction, where=_at_coordinator, gives={JSON: ref("Transaction")},
        problems=(404,),
    ),
    Operation(
        name="abort_transaction", role=Role.OPERATE,
        method="POST", path="/transactions/{transaction}/abort",
        summary="Abort an open transaction and fence its producer, as if it had timed out.",
        handle=abort_transaction, where=_at_coordinator, gives={JSON: ref("Transaction")},
        problems=(404, 409),
    ),
    Operation(
        name="list_coordinated_transactions", role=Role.LOOK, method="GET",
        path="/brokers/{broker_id}/transactions",
        summary="List the transactional ids that a broker coordinates.", handle=list_coordinated,
        where=at_broker, query=_LISTED, gives={JSON: ref("TransactionPage")}, problems=(404,),
    ),
)  # fmt: skip

"""Maps errors to what the admin API answers: `application/problem+json` (RFC 9457).

Each error has a status, a constant name that scripts may compare, and a hint that says what to do
about it. Handlers raise typed errors, or a `Problem` where only the API knows what is wrong. 400
says that a request does not follow the OpenAPI document; 422 that it does, but cannot be carried
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from broker import errors as e
from broker.admin.schema import Fault, Schema, list_of, record, ref, text, truth, whole
from client import errors as base
from client.node.http_guard import AccessRefused

MEDIA_TYPE: Final = "application/problem+json"
_URN: Final = "urn:quire:problem:"
RETRY_AFTER_S: Final = 1

_AGAIN: Final = "Try again in a moment."
_LOOK: Final = "Look at the broker's log."


class Problem(base.QuireError):
    """A request that failed; nothing of it was done, unless it says so."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        hint: str,
        *,
        field: str | None = None,
        faults: Sequence[Fault] = (),
        may_have_happened: bool = False,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.hint = hint
        self.may_have_happened = may_have_happened
        self.may_work_later = status == 503
        """Whether the same request may succeed later; set where the status does not say it."""
        self.faults = tuple(faults) or ((Fault(field, detail),) if field else ())


def of_access(error: AccessRefused) -> Problem:
    """Return what whoever may not ask for something is answered with."""
    made = Problem(error.status, error.code, error.detail, error.hint, field=error.field)
    made.may_work_later = error.retry_after_s is not None
    return made


class _Row(NamedTuple):
    status: int
    name: str
    hint: str
    field: str | None = None


_ROWS: Final[Mapping[type, _Row]] = {
    e.BrokerError: _Row(500, "failed", _LOOK),
    # the request
    e.RequestError: _Row(400, "invalid-request", "Correct the request."),
    e.InvalidRecord: _Row(422, "invalid-record", "Correct the records.", "records"),
    e.MessageTooLarge: _Row(
        413, "record-too-large",
        "Send fewer or smaller records, or raise the topic's max.message.bytes.", "records",
    ),
    e.BatchTooLarge: _Row(413, "record-too-large", "Send fewer records at once.", "records"),
    e.InvalidTopicName: _Row(
        400, "invalid-topic-name", "Use 1 to 249 letters, digits, dots, underscores or hyphens.",
        "topic",
    ),
    e.TopicExists: _Row(
        409, "topic-exists", "Change it with PATCH, or choose another name.", "topic"
    ),
    e.InvalidPartitions: _Row(
        422, "invalid-partition-count", "Partitions can be added, not removed.", "partition_count"
    ),
    e.InvalidReplicationFactor: _Row(
        422, "invalid-replication-factor", "Ask for fewer copies, or add bookies.",
        "replication_factor",
    ),
    e.InvalidTopicConfig: _Row(
        422, "invalid-setting", "GET /config of the topic, or group, for every setting.", "settings"
    ),
    e.PolicyViolation: _Row(
        409, "not-allowed", "Internal topics belong to the brokers: use another one."
    ),
    # leadership
    e.UnknownTopicOrPartition: _Row(
        404, "unknown-topic-or-partition", "GET /admin/v1/topics lists the topics."
    ),
    e.LeadershipError: _Row(503, "not-led-now", _AGAIN),
    e.LeadershipLost: _Row(
        503, "leadership-lost", "It may have been carried out: check before you try again."
    ),
    # the log
    e.LogError: _Row(503, "log-unavailable", _AGAIN),
    e.OffsetOutOfRange: _Row(
        422, "offset-out-of-range", "GET the partition to see its first and last offset.", "offset"
    ),
    e.RequestTimedOut: _Row(
        504, "timed-out", "It may have been carried out: check before you try again."
    ),
    e.NotEnoughReplicas: _Row(
        503, "too-few-bookies", "GET /admin/v1/bookies shows which bookies are there."
    ),
    # groups
    e.GroupError: _Row(503, "group-unavailable", _AGAIN),
    e.GroupIdNotFound: _Row(404, "unknown-group", "GET /admin/v1/groups lists the groups."),
    e.NonEmptyGroup: _Row(409, "group-has-members", "Stop the group's consumers first."),
    e.UnknownMember: _Row(409, "group-has-members", "Stop the group's consumers first."),
    e.RebalanceInProgress: _Row(409, "group-has-members", "Stop the group's consumers first."),
    e.InvalidGroupId: _Row(422, "invalid-group", "Give the group's name.", "group"),
    # transactions
    e.TransactionError: _Row(409, "transaction-refused", "GET the transaction to see its state."),
    e.ConcurrentTransactions: _Row(503, "transaction-busy", _AGAIN),
    e.TransactionalIdNotFound: _Row(
        404, "unknown-transaction", "GET /admin/v1/transactions lists the transactional ids."
    ),
    e.TransactionsDisabled: _Row(
        409, "transactions-disabled", "Set transactions.enabled on all brokers."
    ),
    # from below
    base.LogCorrupt: _Row(500, "log-damaged", "The broker's log has the cause."),
    base.MetadataError: _Row(
        503, "metadata-unavailable", "Check that ZooKeeper answers, then try again."
    ),
    base.LedgerError: _Row(
        503, "ledgers-unavailable", "GET /admin/v1/bookies shows which bookies are there."
    ),
    base.NoSuchLedger: _Row(404, "unknown-ledger", "It may have been trimmed in the meantime."),
}  # fmt: skip

SCHEMA: Final[Schema] = record(
    "What went wrong, and what to do (RFC 9457).",
    {
        "type": text(f"Kind of problem, constant: {_URN} and a name."),
        "title": text("The status in words."),
        "status": whole("The HTTP status."),
        "detail": text("What is wrong."),
        "hint": text("What to do."),
        "retriable": truth("Whether the same request may succeed later."),
        "may_have_happened": truth("Whether the operation may have been carried out all the same."),
        "faults": list_of(ref("Fault"), "Which fields of the request are to blame, if any are.", 0),
    },
    optional=("faults",),
)
FAULT_SCHEMA: Final[Schema] = record(
    "One wrong field.",
    {
        "field": text("A path or query parameter, or a position in the body: records[2].key."),
        "message": text("What is wrong with it."),
    },
)


def of(error: BaseException) -> dict[str, Any]:
    """Return the body of an error's answer; its `status` is the response's."""
    if isinstance(error, AccessRefused):
        error = of_access(error)
    if isinstance(error, Problem):
        row = _Row(error.status, error.name, error.hint)
        faults = error.faults
    else:
        row = _row(error)
        faults = (Fault(row.field, str(error)),) if row.field else ()
    known = isinstance(error, base.QuireError)
    unknown_outcome = known and getattr(error, "outcome", None) is base.Outcome.UNKNOWN
    body: dict[str, Any] = {
        "type": _URN + row.name,
        "title": HTTPStatus(row.status).phrase,
        "status": row.status,
        "detail": str(error) or row.name if known else "the broker failed unexpectedly",
        "hint": row.hint,
        "retriable": getattr(error, "may_work_later", known and getattr(error, "retriable", False)),
        "may_have_happened": getattr(error, "may_have_happened", unknown_outcome),
    }
    if faults:
        body["faults"] = [{"field": fault.field, "message": fault.message} for fault in faults]
    return body


def _row(error: BaseException) -> _Row:
    for kind in type(error).__mro__:
        row = _ROWS.get(kind)
        if row is not None:
            return row
    return _Row(500, "failed", _LOOK)


def invalid(faults: Sequence[Fault]) -> Problem:
    """Return what a request with wrong fields is answered with."""
    detail = "; ".join(f"{fault.field} {fault.message}" for fault in faults)
    return Problem(
        400, "invalid-request", detail, "Correct the fields; /openapi.json describes them.",
        faults=faults,
    )  # fmt: skip


def impossible(faults: Sequence[Fault]) -> Problem:
    """Return what a request is answered with that is well-formed and cannot be done."""
    detail = "; ".join(f"{fault.field} {fault.message}" for fault in faults)
    return Problem(422, "impossible", detail, "Change the fields.", faults=faults)


def wrong_field(field: str, message: str) -> Problem:
    """Return the same for one field."""
    return impossible([Fault(field, message)])

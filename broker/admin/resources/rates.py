"""/rates: traffic in each second of the last minutes, of one broker or of all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.admin.context import AdminContext, at_broker
from broker.admin.operation import Operation, Role
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.sampler import INTERVAL_S, SAMPLES_MAX, Sample
from broker.admin.schema import Schema, list_of, number, record, ref, whole

_INTERVAL_MS: Final = round(INTERVAL_S * 1000)
_HELD_MS: Final = 3 * _INTERVAL_MS
"""A broker's samples drift against the seconds: one counts until the next, at most this long."""

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Beat": record(
        "The traffic within one second.",
        {
            "at_ms": whole("The end of that second."),
            "produced_records": number("Records accepted per second."),
            "produced_bytes": number("Record bytes accepted per second."),
            "fetched_bytes": number("Record bytes sent to consumers per second."),
            "requests": number("Requests answered per second."),
        },
    ),
    "Rates": record(
        "Rates of the last minutes.",
        {
            "beats": list_of(ref("Beat"), "Oldest first.", 0, SAMPLES_MAX),
            "silent": list_of(whole("A broker."), "Brokers that are missing from the sums."),
        },
    ),
}


def show(sample: Sample) -> dict[str, Any]:
    """Return a sample as JSON has it."""
    return {
        name: value if name == "at_ms" else round(value, 3)
        for name, value in sample._asdict().items()
    }


async def describe_broker_rates(context: AdminContext, request: AdminRequest) -> Answer:
    """Show the traffic of this broker."""
    samples = context.sampler.since(request.query["after_ms"])
    return Answer({"beats": [show(sample) for sample in samples], "silent": []})


async def describe_rates(context: AdminContext, request: AdminRequest) -> Answer:
    """Add up the traffic of all brokers."""
    after_ms = request.query["after_ms"]
    query = {"after_ms": str(max(0, after_ms - _HELD_MS))}
    others = await context.peer_client.ask_all(lambda one: f"/brokers/{one.id}/rates", query)
    series = [
        context.sampler.since(after_ms - _HELD_MS),
        *([Sample(**row) for row in answer["beats"]] for answer in others.answers.values()),
    ]
    summed = _sum([samples for samples in series if samples], after_ms)
    return Answer({"beats": [show(sample) for sample in summed], "silent": list(others.silent)})


def _sum(series: Sequence[Sequence[Sample]], after_ms: int) -> list[Sample]:
    """Add up series, second by second, up to the last one that all of them have."""
    if not series:
        return []
    first = max(after_ms + 1, min(samples[0].at_ms for samples in series))
    last = min(samples[-1].at_ms for samples in series)
    seconds = range(-(-first // _INTERVAL_MS), last // _INTERVAL_MS + 1)
    return [_at(series, second * _INTERVAL_MS) for second in list(seconds)[-SAMPLES_MAX:]]


def _at(series: Sequence[Sequence[Sample]], at_ms: int) -> Sample:
    sums = [0.0] * (len(Sample._fields) - 1)
    for samples in series:
        place = bisect_right(samples, at_ms, key=lambda sample: sample.at_ms) - 1
        if place >= 0 and samples[place].at_ms > at_ms - _HELD_MS:
            sums = [total + value for total, value in zip(sums, samples[place][1:], strict=True)]
    return Sample(at_ms, *sums)


_AFTER: Final = {"after_ms": whole("Only what ended later than that.", default=0)}
OPERATIONS: Final = (
    Operation(
        name="describe_rates", role=Role.LOOK, method="GET", path="/rates",
        summary="Show the traffic of the cluster, second by second.",
        handle=describe_rates, query=_AFTER, gives={JSON: ref("Rates")},
    ),
    Operation(
        name="describe_broker_rates", role=Role.LOOK,
        method="GET", path="/brokers/{broker_id}/rates",
        summary="Show the traffic of one broker, second by second.",
        handle=describe_broker_rates, where=at_broker, query=_AFTER, gives={JSON: ref("Rates")},
        problems=(404,),
    ),
)  # fmt: skip

"""/rates: what moved in each second of the last minutes, on one broker or on all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.admin.operation import JSON, Answer, Ask, Operation
from broker.admin.pulse import INTERVAL_S, SAMPLES_MAX, Beat
from broker.admin.schema import Schema, list_of, number, record, ref, whole
from broker.admin.site import Site, at_broker

_INTERVAL_MS: Final = round(INTERVAL_S * 1000)
_HELD_MS: Final = 3 * _INTERVAL_MS
"""A broker's beats drift against the seconds: one counts until the next, at most so long."""

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Beat": record(
        "What moved within one second.",
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
            "silent": list_of(whole("A broker."), "Brokers that are missing in the sums."),
        },
    ),
}


def show(beat: Beat) -> dict[str, Any]:
    """Return a beat as JSON has it."""
    return {
        name: value if name == "at_ms" else round(value, 3)
        for name, value in beat._asdict().items()
    }


async def describe_broker_rates(site: Site, ask: Ask) -> Answer:
    """Show what moved on this broker."""
    beats = site.pulse.since(ask.query["after_ms"])
    return Answer({"beats": [show(beat) for beat in beats], "silent": []})


async def describe_rates(site: Site, ask: Ask) -> Answer:
    """Sum up what moved on all brokers."""
    after_ms = ask.query["after_ms"]
    query = {"after_ms": str(max(0, after_ms - _HELD_MS))}
    others = await site.neighbours.ask_all(lambda one: f"/brokers/{one.id}/rates", query)
    series = [
        site.pulse.since(after_ms - _HELD_MS),
        *([Beat(**row) for row in answer["beats"]] for answer in others.answers.values()),
    ]
    summed = _sum([beats for beats in series if beats], after_ms)
    return Answer({"beats": [show(beat) for beat in summed], "silent": list(others.silent)})


def _sum(series: Sequence[Sequence[Beat]], after_ms: int) -> list[Beat]:
    """Add up series, second by second, up to the last one that all of them have."""
    if not series:
        return []
    first = max(after_ms + 1, min(beats[0].at_ms for beats in series))
    last = min(beats[-1].at_ms for beats in series)
    seconds = range(-(-first // _INTERVAL_MS), last // _INTERVAL_MS + 1)
    return [_at(series, second * _INTERVAL_MS) for second in list(seconds)[-SAMPLES_MAX:]]


def _at(series: Sequence[Sequence[Beat]], at_ms: int) -> Beat:
    sums = [0.0] * (len(Beat._fields) - 1)
    for beats in series:
        place = bisect_right(beats, at_ms, key=lambda beat: beat.at_ms) - 1
        if place >= 0 and beats[place].at_ms > at_ms - _HELD_MS:
            sums = [total + value for total, value in zip(sums, beats[place][1:], strict=True)]
    return Beat(at_ms, *sums)


_AFTER: Final = {"after_ms": whole("Only what ended later than that.", default=0)}
OPERATIONS: Final = (
    Operation(
        name="describe_rates", method="GET", path="/rates",
        summary="Show how much moved in the cluster, second by second.",
        handle=describe_rates, query=_AFTER, gives={JSON: ref("Rates")},
    ),
    Operation(
        name="describe_broker_rates", method="GET", path="/brokers/{broker_id}/rates",
        summary="Show how much moved on one broker, second by second.",
        handle=describe_broker_rates, where=at_broker, query=_AFTER, gives={JSON: ref("Rates")},
        problems=(404,),
    ),
)  # fmt: skip

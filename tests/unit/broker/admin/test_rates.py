"""/rates: the sums over brokers whose seconds do not begin together."""

from __future__ import annotations

from broker.admin.resources.rates import _sum
from broker.admin.sampler import Sample
from tests.fakes.admin import AdminCloud


def beats(*rows: tuple[int, float]) -> list[Sample]:
    return [Sample(at_ms, records, 0.0, 0.0, 0.0) for at_ms, records in rows]


def summed(*series: list[Sample], after_ms: int = 0) -> list[tuple[int, float]]:
    return [(beat.at_ms, beat.produced_records) for beat in _sum(series, after_ms)]


def test_beats_count_until_the_next_one() -> None:
    first = beats((1_100, 1), (2_100, 2), (3_100, 3))
    second = beats((1_900, 10), (2_900, 20), (3_900, 30))
    assert summed(first, second) == [(2_000, 11), (3_000, 22)]
    assert summed(first, second, after_ms=2_000) == [(3_000, 22)]
    assert summed(first) == [(2_000, 1), (3_000, 2)]
    assert summed() == []


def test_a_broker_that_has_stopped_counts_no_more() -> None:
    first = beats(*((1_000 * n, 1) for n in range(1, 12)))
    assert summed(first, beats((1_000, 5), (11_000, 5))) == [
        (1_000, 6), (2_000, 6), (3_000, 6), *((1_000 * n, 1) for n in range(4, 11)), (11_000, 6),
    ]  # fmt: skip


async def test_every_broker_answers_for_all() -> None:
    async with AdminCloud(2) as cloud:
        for broker in cloud.brokers.values():
            broker.metrics.on_produced("t", 100, 1_000)
        samplers = [admin._sampler for admin in cloud.admins.values()]
        for sampler in samplers:
            sampler.close()
            sampler._seen_s -= 1.0
            cloud.cloud.clock.ms += 500
            sampler._sample()
            sampler.close()
        clock = cloud.cloud.clock
        clock.ms += 1_000
        for sampler in samplers:
            sampler._sample()
            sampler.close()
        for at in (1, 2):
            shown = (await cloud.get("/rates", at=at))["beats"]
            assert shown
            assert shown[0]["produced_records"] > 0
            one = await cloud.get("/brokers/2/rates", at=at)
            assert len(one["beats"]) == 2
            assert await cloud.get("/rates?after_ms=9000000000000", at=at) == {
                "beats": [], "silent": [],
            }  # fmt: skip
        assert (await cloud.get("/brokers/2"))["live"]["rates"]["produced_bytes"] >= 0
        await cloud.admins[2].close()
        assert (await cloud.get("/rates"))["silent"] == [2]

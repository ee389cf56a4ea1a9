"""Keeps the last values of the metrics that clients push, within limits (KIP-714).

A client instance pushes all that is wanted of it, as totals since it began, so what it pushes
replaces what it pushed before. One that has been silent for two of its intervals is forgotten.

    BOUNDED     The numbers of clients, of all values and of one client's values are limited. A
                new client for which there is no room is told that nothing is wanted; values
                beyond are dropped and counted.
    SHARED      A client names itself, so one address can be any number of clients. When there is
                no room, a new one takes the place of the client that was silent longest at the
                address with the most, if its own address has fewer.
    PACED       A push sooner than half an interval after the last one is refused, but for the last
                one of a client that ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

_SOFTWARE_MAX: Final = 2_000
"""Connections whose software is remembered, the latest ones."""
_SILENT_INTERVALS: Final = 2.5
_TEXT_CHARS_MAX: Final = 100

Values = Mapping[tuple[str, str], float]
"""(name of a metric, its attributes as one text) -> value."""


class Limits(NamedTuple):
    """How much is kept."""

    clients_max: int
    series_max: int
    client_series_max: int


class Who(NamedTuple):
    """A client, as its metrics are labelled."""

    client_id: str
    software: str


class _Instance:
    __slots__ = ("gone_s", "network", "pushed_s", "values", "who")

    def __init__(self, who: Who, gone_s: float, network: str) -> None:
        self.who = who
        self.network = network
        self.gone_s = gone_s
        self.pushed_s: float | None = None
        self.values: Values = {}


class ClientTelemetry:
    """What clients of one broker have told of themselves."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        self.dropped = 0
        """Values for which there was no room."""
        self.series_count = 0
        self._instances: dict[UUID, _Instance] = {}
        """The one that was heard of last is last."""
        self._counts: Counter[str] = Counter()
        """Of clients, by network."""
        self._software: dict[int, tuple[str, str]] = {}

    @property
    def client_count(self) -> int:
        """Clients that are remembered."""
        return len(self._instances)

    def note_software(self, connection: int, name: str, version: str) -> None:
        """Remember what a connection says of its client."""
        self._software.pop(connection, None)
        self._software[connection] = (_short(name), _short(version))
        if len(self._software) > _SOFTWARE_MAX:
            del self._software[next(iter(self._software))]

    def software(self, connection: int) -> tuple[str, str]:
        """Return (name, version) of a connection's client; empty: it did not say."""
        return self._software.get(connection, ("", ""))

    def admit(
        self, instance_id: UUID, who: Who, interval_ms: int, now_s: float, *, network: str
    ) -> bool:
        """Remember a client; say whether there is room for it. `network`: where it is."""
        self._forget_silent(now_s)
        instance = self._instances.pop(instance_id, None)
        if instance is None:
            if len(self._instances) >= self.limits.clients_max and not self._make_room(network):
                return False
            instance = _Instance(Who(_short(who.client_id), _short(who.software)), 0.0, network)
            self._counts[network] += 1
        instance.gone_s = now_s + _SILENT_INTERVALS * interval_ms / 1000
        self._instances[instance_id] = instance
        return True

    def _make_room(self, network: str) -> bool:
        """Forget a client of the address that has most, if that is not the asker's own."""
        if not self._counts:
            return False
        fullest, count = self._counts.most_common(1)[0]
        if count <= self._counts[network] + 1:
            return False
        self._forget(next(key for key, one in self._instances.items() if one.network == fullest))
        return True

    def is_early(self, instance_id: UUID, interval_ms: int, now_s: float) -> bool:
        """Say whether a push comes sooner than it should."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.pushed_s is None:
            return False
        return now_s < instance.pushed_s + interval_ms / 2000

    def push(self, instance_id: UUID, values: Values, now_s: float) -> None:
        """Replace what an admitted client pushed before."""
        instance = self._instances[instance_id]
        instance.pushed_s = now_s
        self.series_count -= len(instance.values)
        room = min(self.limits.client_series_max, self.limits.series_max - self.series_count)
        kept = {key: values[key] for key in list(values)[: max(0, room)]}
        self.dropped += len(values) - len(kept)
        self.series_count += len(kept)
        instance.values = kept

    def samples(self, now_s: float) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield (labels, value) of every value that is kept."""
        self._forget_silent(now_s)
        for instance_id, instance in self._instances.items():
            labels = {
                "client_id": instance.who.client_id,
                "software": instance.who.software,
                "instance_id": str(instance_id),
            }
            for (metric, attributes), value in instance.values.items():
                yield {**labels, "metric": metric, "attributes": attributes}, value

    def _forget_silent(self, now_s: float) -> None:
        silent = [key for key, one in self._instances.items() if one.gone_s <= now_s]
        for key in silent:
            self._forget(key)

    def _forget(self, instance_id: UUID) -> None:
        instance = self._instances.pop(instance_id)
        self.series_count -= len(instance.values)
        self._counts[instance.network] -= 1
        if not self._counts[instance.network]:
            del self._counts[instance.network]


def _short(text: str) -> str:
    return text[:_TEXT_CHARS_MAX]

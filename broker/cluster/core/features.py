"""Which of Kafka's features this release supports, and which the cluster has finalized.

A finalized level is one that all brokers of the cluster support. It is raised when every registered
broker supports more, and lowered only by an operator. A level that an operator has chosen stays
until an operator changes it. The epoch grows with each change and never falls: clients ignore
answers with an older one.

    /quire/features    {"version": 1, "epoch": n, "levels": {name: level}, "chosen": [name]}

Sources: KIP-584, KIP-778; Kafka's FeatureControlManager on what may be changed.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.errors import InvalidUpdateVersion
from client.errors import LogCorrupt
from client.ids import BrokerId
from client.metadata.json_node import NO_FIELDS, read_object, unknown_fields, whole

TRANSACTION_VERSION: Final = "transaction.version"

GROUP_VERSION: Final = "group.version"

SHARE_VERSION: Final = "share.version"

KNOWN: Final[Mapping[str, int]] = {GROUP_VERSION: 1, SHARE_VERSION: 2, TRANSACTION_VERSION: 2}
"""The highest level of each feature that this release supports; 0: it is not published. With level
1 of `group.version` groups may use the consumer protocol (KIP-848), whose records earlier releases
pass over; with level 1 of `share.version` there are share groups (KIP-932), whose state in the logs
of partitions earlier releases refuse to read, and with level 2 they have dead letters, of which the
same is true; with level 2 of `transaction.version` each transaction has an epoch of its own
(KIP-890).
"""

Levels = Mapping[str, int]

_FORMAT: Final = 1
_FIELDS: Final = frozenset(("version", "epoch", "levels", "chosen"))
_LEVEL_MAX: Final = 0x7FFF
_FEATURES_MAX: Final = 100


class UpdateType(enum.IntEnum):
    """How an operator asks to change a feature's level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature of a request to change levels."""

    name: str
    level: int
    """0: the feature is no longer used."""
    kind: int
    """An UpdateType, or an invalid value that a client has sent."""


class Finalized(NamedTuple):
    """The finalized features of the cluster."""

    epoch: int
    """-1: no feature was ever finalized."""
    levels: Levels
    chosen: frozenset[str] = frozenset()
    """Features whose level an operator has set: nothing else raises them."""
    kept: Mapping[str, Any] = NO_FIELDS
    """Fields of the node that this release does not know."""

    def raised(self, brokers: Iterable[Levels]) -> Finalized | None:
        """Return what to finalize next, given what each registered broker supports; None: nothing
        changes."""
        known = list(brokers)
        levels = dict(self.levels)
        for name in KNOWN.keys() - self.chosen:
            common = min((one.get(name, 0) for one in known), default=0)
            if common > levels.get(name, 0):
                levels[name] = common
        if levels == self.levels:
            return None
        return self._replace(epoch=self.epoch + 1, levels=levels)

    def updated(
        self, updates: Sequence[FeatureUpdate], brokers: Mapping[BrokerId, Levels]
    ) -> Finalized:
        """Return what to finalize on an operator's request; `brokers`: what each of them supports.

        Raises InvalidUpdateVersion.
        """
        levels = dict(self.levels)
        for name, level, kind in updates:
            problem = _problem(name, level, kind, self.levels.get(name, 0), brokers)
            if problem is not None:
                raise InvalidUpdateVersion(f"level {level} of {name!r}: {problem}")
            levels[name] = level
        chosen = self.chosen | {one.name for one in updates}
        if (levels, chosen) == (self.levels, self.chosen):
            return self
        return Finalized(self.epoch + 1, levels, chosen, self.kept)

    def unknown(self) -> list[str]:
        """Return the finalized features that this release does not support: it must not start."""
        return [
            f"{name} {level}" for name, level in self.levels.items() if level > KNOWN.get(name, 0)
        ]

    def encode(self) -> bytes:
        """Return the node's bytes."""
        fields: dict[str, Any] = {**self.kept, "version": _FORMAT, "epoch": self.epoch}
        fields["levels"] = dict(self.levels)
        if self.chosen:
            fields["chosen"] = sorted(self.chosen)
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Finalized:
        """Read the node's bytes. Raises LogCorrupt."""
        try:
            fields = read_object(data)
            if fields["version"] == _FORMAT:
                levels = read_levels(fields["levels"])
                chosen = _read_chosen(fields.get("chosen", []))
                return cls(whole(fields, "epoch"), levels, chosen, unknown_fields(fields, _FIELDS))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogCorrupt(f"the finalized features are not readable: {error!r}") from error
        raise LogCorrupt(f"the finalized features have format {fields['version']}")


NOTHING: Final = Finalized(-1, {})


def read_levels(raw: Any) -> Levels:
    """Read levels out of a JSON object. Raises ValueError, AttributeError."""
    if len(raw) > _FEATURES_MAX:
        raise ValueError(f"{len(raw)} features")
    return {str(name): whole(raw, name, 0, _LEVEL_MAX) for name in sorted(raw.keys())}


def _read_chosen(raw: Any) -> frozenset[str]:
    if not isinstance(raw, list) or len(raw) > _FEATURES_MAX:
        raise ValueError("the chosen features are not a list")
    return frozenset(str(name) for name in raw)


def _problem(
    name: str, level: int, kind: int, current: int, brokers: Mapping[BrokerId, Levels]
) -> str | None:
    """Return why a feature cannot have a level; None if it can."""
    if kind not in tuple(UpdateType):
        return f"unknown upgrade type {kind}"
    if level < 0:
        return "a level must not be negative"
    if name not in KNOWN:
        return "this release does not support the feature"
    for broker, levels in sorted(brokers.items()):
        if level > levels.get(name, 0):
            return f"broker {broker} supports levels 0 to {levels.get(name, 0)}"
    if level < current and kind == UpdateType.UPGRADE:
        return f"the level is {current}; lowering it requires a downgrade"
    if level > current and kind != UpdateType.UPGRADE:
        return f"the level is {current}; raising it requires an upgrade"
    return None


def published(levels: Levels) -> Levels:
    """Return the levels that clients are told: those above 0."""
    return {name: level for name, level in sorted(levels.items()) if level > 0}

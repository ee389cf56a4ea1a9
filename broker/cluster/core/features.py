"""Which of Kafka's features this release knows, and which the cluster uses (finalized ones).

A feature's level is what all brokers of a cluster understand of it. It is raised when every
registered broker knows more, and lowered by an operator only. Whatever an operator has chosen stays
until he says otherwise. The epoch grows with each change and never falls, for clients take no
answer with an older one.

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
from client.metadata.json_node import read_object, whole

TRANSACTION_VERSION: Final = "transaction.version"

KNOWN: Final[Mapping[str, int]] = {TRANSACTION_VERSION: 2}
"""The highest level of each feature that this release knows: the one switch. 0: it is not
published. `transaction.version` 2 is that each transaction has an epoch of its own (KIP-890)."""

Levels = Mapping[str, int]

_FORMAT: Final = 1
_LEVEL_MAX: Final = 0x7FFF
_FEATURES_MAX: Final = 100


class UpdateType(enum.IntEnum):
    """What an operator means to do to a feature."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature of a request to change levels."""

    name: str
    level: int
    """0: it is used no longer."""
    kind: int
    """An UpdateType, or whatever else a client has sent."""


class Finalized(NamedTuple):
    """What the cluster uses."""

    epoch: int
    """-1: it never finalized any."""
    levels: Levels
    chosen: frozenset[str] = frozenset()
    """Features whose level an operator has set: nothing else raises them."""

    def raised(self, brokers: Iterable[Levels]) -> Finalized | None:
        """Return what to finalize next, given what each registered broker knows; None: nothing."""
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
        """Return what to finalize by an operator's word; `brokers`: what each of them knows.

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
        return Finalized(self.epoch + 1, levels, chosen)

    def unknown(self) -> list[str]:
        """Return what is used and not known to this release: it must not take part."""
        return [
            f"{name} {level}" for name, level in self.levels.items() if level > KNOWN.get(name, 0)
        ]

    def encode(self) -> bytes:
        """Return the node's bytes."""
        fields: dict[str, Any] = {"version": _FORMAT, "epoch": self.epoch}
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
                return cls(whole(fields, "epoch"), levels, _read_chosen(fields.get("chosen", [])))
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
        raise ValueError("what was chosen is not a list of features")
    return frozenset(str(name) for name in raw)


def _problem(
    name: str, level: int, kind: int, current: int, brokers: Mapping[BrokerId, Levels]
) -> str | None:
    """Say why a feature cannot have a level, None if it can."""
    if kind not in tuple(UpdateType):
        return f"there is no type {kind} of updates"
    if level < 0:
        return "a level is 0 or more"
    if name not in KNOWN:
        return "this release does not know the feature"
    for broker, levels in sorted(brokers.items()):
        if level > levels.get(name, 0):
            return f"broker {broker} knows 0 to {levels.get(name, 0)}"
    if level < current and kind == UpdateType.UPGRADE:
        return f"it is {current}, and to lower it takes a downgrade"
    if level > current and kind != UpdateType.UPGRADE:
        return f"it is {current}, and a downgrade does not raise it"
    return None


def published(levels: Levels) -> Levels:
    """Return those that are worth a word to clients."""
    return {name: level for name, level in sorted(levels.items()) if level > 0}

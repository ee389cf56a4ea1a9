"""Which of Kafka's features this release knows, and which the cluster uses (finalized ones).

A feature's level is what all brokers of a cluster understand of it. It is raised when every
registered broker knows more, and never lowered: clients act on what was published once. Its epoch
grows with each change and never falls, for clients take no answer with an older one.

    /quire/features    {"version": 1, "epoch": n, "levels": {name: level}}

Source: KIP-584.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from client.errors import LogCorrupt
from client.metadata.json_node import read_object, whole

TRANSACTION_VERSION: Final = "transaction.version"

KNOWN: Final[Mapping[str, int]] = {TRANSACTION_VERSION: 2}
"""The highest level of each feature that this release knows: the one switch. 0: it is not
published. `transaction.version` 2 is that each transaction has an epoch of its own (KIP-890)."""

Levels = Mapping[str, int]

_FORMAT: Final = 1
_LEVEL_MAX: Final = 0x7FFF
_FEATURES_MAX: Final = 100


class Finalized(NamedTuple):
    """What the cluster uses."""

    epoch: int
    """-1: it never finalized any."""
    levels: Levels

    def raised(self, brokers: Iterable[Levels]) -> Finalized | None:
        """Return what to finalize next, given what each registered broker knows; None: nothing."""
        known = list(brokers)
        levels = dict(self.levels)
        for name in KNOWN:
            common = min((one.get(name, 0) for one in known), default=0)
            if common > levels.get(name, 0):
                levels[name] = common
        return None if levels == self.levels else Finalized(self.epoch + 1, levels)

    def unknown(self) -> list[str]:
        """Return what is used and not known to this release: it must not take part."""
        return [
            f"{name} {level}" for name, level in self.levels.items() if level > KNOWN.get(name, 0)
        ]

    def encode(self) -> bytes:
        """Return the node's bytes."""
        fields = {"version": _FORMAT, "epoch": self.epoch, "levels": dict(self.levels)}
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Finalized:
        """Read the node's bytes. Raises LogCorrupt."""
        try:
            fields = read_object(data)
            if fields["version"] == _FORMAT:
                return cls(whole(fields, "epoch"), read_levels(fields["levels"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogCorrupt(f"the finalized features are not readable: {error!r}") from error
        raise LogCorrupt(f"the finalized features have format {fields['version']}")


NOTHING: Final = Finalized(-1, {})


def read_levels(raw: Any) -> Levels:
    """Read levels out of a JSON object. Raises ValueError, AttributeError."""
    if len(raw) > _FEATURES_MAX:
        raise ValueError(f"{len(raw)} features")
    return {str(name): whole(raw, name, 0, _LEVEL_MAX) for name in sorted(raw.keys())}


def published(levels: Levels) -> Levels:
    """Return those that are worth a word to clients."""
    return {name: level for name, level in sorted(levels.items()) if level > 0}

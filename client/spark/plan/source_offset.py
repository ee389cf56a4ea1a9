"""The offset that Spark keeps in its checkpoint: a position in every partition, and what it needs.

    {"$quire": {"base": {"t": {"0": 50}}, "hints": {"t": {"0": {"e": 9012, "l": 77}}},
                "ids": {"t": "<uuid>"}, "v": 1},
     "t": {"0": 12345}}

Topics stand at the top as in the offsets of Spark's Kafka source, so whatever reads those reads
these; `$quire` cannot be a topic's name. What it holds:

- `base`: where reading began, for partitions whose start no earlier offset tells: all of them in
  the first batch, new ones later. Spark asks anew for the initial offset when the first batch
  did not get committed, and by then "latest" lies further on; `base` wins over it (`starts`).
- `hints`: the ledger and entry of the last record below the offset, for ledger mode.
- `ids`: topic ids: a topic that was deleted and created again is another log.

Spark compares offsets as text. So keys are always in the same order, nothing depends on anything
but the position, and an offset that does not move is passed on as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from client.errors import ConfigError
from client.spark.splits import Position, TopicPartition

ABOUT: Final = "$quire"
VERSION: Final = 1

Json = dict[str, Any]


@dataclass(frozen=True)
class SourceOffset:
    """A position in every partition of a query, exclusive: the next offset to read."""

    positions: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[TopicPartition, int] = field(default_factory=dict)
    hints: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return it as Spark keeps it: keys sorted, partitions by number, nothing empty."""
        about: Json = {}
        if self.base:
            about["base"] = _by_topic(self.base)
        if self.hints:
            hints = {at: {"e": h.entry_id, "l": h.ledger_id} for at, h in self.hints.items()}
            about["hints"] = _by_topic(hints)
        if self.ids:
            about["ids"] = dict(sorted(self.ids.items()))
        about["v"] = VERSION
        return {ABOUT: about, **_by_topic(self.positions)}


def parse_offset(tree: Json) -> SourceOffset:
    """Read what `to_json` wrote, or plain offsets by topic. Raises ConfigError."""
    about = tree.get(ABOUT, {"v": VERSION})
    if not isinstance(about, dict) or about.get("v") != VERSION:
        raise ConfigError(
            "the checkpoint was written by another version of Quire: its offsets have format"
            f" {about.get('v') if isinstance(about, dict) else about!r}, this one reads {VERSION}"
        )
    try:
        topics = {name: row for name, row in tree.items() if name != ABOUT}
        hints = _by_partition(about.get("hints", {}))
        return SourceOffset(
            _by_partition(topics),
            dict(about.get("ids", {})),
            _by_partition(about.get("base", {})),
            {at: Position(hint["l"], hint["e"]) for at, hint in hints.items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the checkpoint holds no offset of this source: {tree}") from error


def initial(positions: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> SourceOffset:
    """Return where a query begins."""
    return SourceOffset(positions, ids, positions)


def advance(
    start: SourceOffset,
    positions: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    added: Mapping[TopicPartition, int],
    hints: Mapping[TopicPartition, Position] | None = None,
) -> SourceOffset:
    """Return the end of a batch that begins at `start`.

    `added` says where partitions begin that `start` does not have, or that belong to another
    topic now. Where nothing but `base` told the start of a partition, `base` goes on telling it.
    """
    base = {
        at: start.base[at]
        for at in positions
        if at in start.base and start.base[at] == start.positions.get(at)
    }
    return SourceOffset(positions, ids, {**base, **added}, hints or {})


def starts(start: SourceOffset, end: SourceOffset) -> dict[TopicPartition, int | None]:
    """Return where a batch from `start` to `end` begins in each partition of `end`.

    None for a partition of which nothing tells it: such offsets were not written here.
    """
    return {at: end.base.get(at, start.positions.get(at)) for at in sorted(end.positions)}


def _by_topic(rows: Mapping[TopicPartition, Any]) -> Json:
    tree: Json = {}
    for at in sorted(rows):
        tree.setdefault(at.topic, {})[str(at.partition)] = rows[at]
    return tree


def _by_partition(tree: Json) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic, int(partition)): value
        for topic, row in tree.items()
        for partition, value in row.items()
    }

"""UpdateFeatures, good and bad: `transaction.version` goes down and comes up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step

F = ApiKey.UPDATE_FEATURES
_NAME = "transaction.version"
_UP, _DOWN = 1, 2
_TYPED = (1, 2)
"""Kafka's brokers forward version 0 to a controller without its `allow_downgrade`, so nothing can
be lowered with it."""


def _row(version: int, name: str, level: int, kind: int) -> dict[str, Any]:
    row: dict[str, Any] = {"feature": name, "max_version_level": level}
    return row | ({"upgrade_type": kind} if version else {"allow_downgrade": kind != _UP})


def _to(*rows: tuple[str, int, int], validate_only: bool = False) -> Callable[[Seen, int], Fields]:
    return lambda _seen, version: {
        "timeout": 10_000, "feature_updates": [_row(version, *row) for row in rows],
        "validate_only": validate_only,
    }  # fmt: skip


FEATURES: Sequence[Step] = (
    Step("only tried", F, _to((_NAME, 0, _DOWN), validate_only=True), (1, 2)),
    Step("down without a word", F, _to((_NAME, 1, _UP))),
    Step("down", F, _to((_NAME, 1, _DOWN)), _TYPED),
    Step("the same", F, _to((_NAME, 1, _UP))),
    Step("up as a downgrade", F, _to((_NAME, 2, _DOWN)), _TYPED),
    Step("too high", F, _to((_NAME, 99, _UP))),
    Step("below nothing", F, _to((_NAME, -1, _DOWN))),
    Step("an unknown feature", F, _to(("no.such.version", 1, _UP))),
    Step("a good one and a bad one", F, _to((_NAME, 2, _UP), ("no.such.version", 1, _UP))),
    Step("an unknown type", F, _to((_NAME, 2, 9)), (1, 2)),
    Step("nothing", F, _to()),
    Step("up", F, _to((_NAME, 2, _UP))),
)

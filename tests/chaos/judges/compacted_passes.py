"""What readers of a compacted topic may see, held against everything that was written to it.

Notes are JSON objects:

    {"f": "write", "by": w, "ms": t, "place": [p, o], "key": k, "value": v}     a record; v is
        null for a deletion; the offset is -1 if nobody was told it, both if it is not known whether
        the record is there
    {"f": "pass", "by": r, "began_ms": t, "ended_ms": t, "bounds": {p: [first, end]}, "count": n,
        "last": {k: [p, o, v]}, "disorder": [...]}     a reading from the first offset to the end
    {"f": "failed", "by": r, "text": why}

A key has one writer, and one partition. What is found is returned; nothing means that all is well.

    disorder      an offset was shown after a higher one
    invented      a record that is not what was written at its offset
    lost-value    a key does not end with the last value before the pass's end, and nobody had sent
                  a newer one when the pass ended
    undeleted     a key ends with a value although it was deleted, and the pass was quick enough to
                  be shown the deletion
    resurrected   a deleted key that a whole pass had not shown was shown by a later one
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tests.chaos.judges.checkers import Anomaly

TOPIC: Final = "compacted"
PARTITIONS: Final = 3
KEYS: Final = 600
"""Of each writer."""
DELETED_P: Final = 0.15
VALUE_BYTES: Final = 100
BATCH_BYTES: Final = 16_000
"""Of a batch: far fewer than a segment has, or brokers refuse it."""
RETAIN_MS: Final = 15_000
"""delete.retention.ms"""
_SHOWN_MAX: Final = 5
_NO_END: Final = 1 << 62


class Write(NamedTuple):
    """A record that was acknowledged."""

    first: int
    """Lowest offset that it can have, and the highest: the same, but for a duplicate, whose place
    its writer was not told. It stands between the writer's records before and after it."""
    last: int
    value: str | None
    ms: int
    """When it was sent."""


class Truth:
    """Everything that was written."""

    def __init__(self, notes: Iterable[dict[str, Any]]) -> None:
        """`notes`: those of a writer in its order."""
        self.count = 0
        self._of: dict[str, list[Write]] = defaultdict(list)
        """Of each key, in order."""
        self._lasts: dict[str, list[int]] = {}
        self._homes: dict[str, int] = {}
        self._unsure: set[str] = set()
        """Keys of which it is not known whether a record is there: nothing can be told of them."""
        sent: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for note in notes:
            self.count += 1
            partition = note["place"][0]
            if partition < 0:
                self._unsure.add(note["key"])
            else:
                self._homes[note["key"]] = partition
                sent[note["by"], partition].append(note)
        for stream in sent.values():
            self._take(stream)
        for key, written in self._of.items():
            self._lasts[key] = [one.last for one in written]

    def _take(self, stream: Sequence[dict[str, Any]]) -> None:
        """Take what one writer has written to a partition."""
        nexts: list[int] = []
        following = _NO_END
        for note in reversed(stream):
            nexts.append(following)
            following = note["place"][1] if note["place"][1] >= 0 else following
        before = -1
        for note, after in zip(stream, reversed(nexts), strict=True):
            offset = note["place"][1]
            known = (offset, offset) if offset >= 0 else (before + 1, after - 1)
            before = max(before, offset)
            self._of[note["key"]].append(Write(*known, note["value"], note["ms"]))

    @property
    def unsure_count(self) -> int:
        """How many keys nothing can be told of."""
        return len(self._unsure)

    def known_keys(self) -> list[str]:
        """Return the keys of which everything is known."""
        return [key for key in self._of if key not in self._unsure]

    def home(self, key: str) -> int:
        """Return the partition of a key."""
        return self._homes[key]

    def find(self, key: str, offset: int, value: str | None) -> int | None:
        """Return which of a key's records this is; None: it was not written there."""
        found, written = None, self._of[key]
        for number in range(bisect_left(self._lasts[key], offset), len(written)):
            if written[number].first > offset:
                break
            if written[number].value == value:
                found = number
        return found

    def before(self, key: str, end: int) -> int | None:
        """Return which of a key's records is the last below an offset; -1: none is; None: that
        cannot be told."""
        written, count = self._of[key], bisect_left(self._lasts[key], end)
        return None if count < len(written) and written[count].first < end else count - 1

    def value(self, key: str, number: int) -> str | None:
        """Return the value of a key's record."""
        return self._of[key][number].value

    def is_newest(self, key: str, number: int, ms: int) -> bool:
        """Whether nobody had sent a newer record of a key than this one until some time."""
        written = self._of[key]
        return number == len(written) - 1 or written[number + 1].ms > ms


def check(truth: Truth, passes: Sequence[dict[str, Any]]) -> list[Anomaly]:
    """Return every anomaly."""
    found: dict[str, list[str]] = defaultdict(list)
    gone: dict[str, tuple[int, int]] = {}
    for one in sorted(passes, key=lambda one: int(one["began_ms"])):
        found["disorder"] += [f"{one['by']}: {text}" for text in one["disorder"]]
        for key in truth.known_keys():
            shown = one["last"].get(key)
            number = None if shown is None else truth.find(key, *shown[1:])
            if shown is not None and (number is None or shown[0] != truth.home(key)):
                found["invented"].append(f"{one['by']}: {key} is {shown}")
            else:
                _check_key(truth, one, key, number, found, gone)
    return [
        Anomaly(name, f"{len(texts)}, as {'; '.join(texts[:_SHOWN_MAX])}")
        for name, texts in found.items()
        if texts
    ]


def _check_key(
    truth: Truth,
    one: dict[str, Any],
    key: str,
    shown: int | None,
    found: dict[str, list[str]],
    gone: dict[str, tuple[int, int]],
) -> None:
    """Judge what a pass shows of a key. `gone`: (which of its records was the deletion, when a pass
    ended that had shown nothing of it)."""
    _, end = one["bounds"][str(truth.home(key))]
    last = truth.before(key, end)
    if last is None or last < 0:
        return
    about = f"{one['by']} ends with {one['last'].get(key)} of {key}, not {truth.value(key, last)}"
    if truth.value(key, last) is not None:
        if (shown is None or shown < last) and truth.is_newest(key, last, one["ended_ms"]):
            found["lost-value"].append(about)
        return
    deleted, since_ms = gone.get(key, (-1, 0))
    if shown is None:
        if deleted < last:
            gone[key] = (last, one["ended_ms"])
    elif (
        shown < last
        and truth.value(key, shown) is not None
        and truth.is_newest(key, last, one["ended_ms"])
    ):
        if one["ended_ms"] - one["began_ms"] <= RETAIN_MS:
            found["undeleted"].append(about)
        if shown < deleted and one["began_ms"] > since_ms:
            found["resurrected"].append(about)

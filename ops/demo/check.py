"""Checks the demonstration: counts what was lost, duplicated, reordered or changed.

Covers what those words mean. It does no I/O: it is told what was published, where each record was
acknowledged, and everything each member of the group received, and it gives a `Verdict`. A record
is identified by its file and its line number, which travel in the record's key and header, so
equal lines are told apart.

- lost: acknowledged, but never received by the group
- duplicated: found at more than one offset of the log
- misplaced: not at the offset that its acknowledgement named
- out of order: a record whose offset is not above that of an earlier line of the same file, or
  that a member was handed after a higher offset of the same partition
- redelivered: the same offset handed out again. A group promises at least once, so this is
  counted but is no fault
- foreign: a record nobody published, or whose bytes differ from what was published

Every publisher of records can say that it lost nothing; the tests plant each fault here and see
it named.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from ops.demo import sources

_NOWHERE = -1


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was counted. `good` is the judgement."""

    published: int
    acknowledged: int
    received: int
    """Different records, however often each was handed out."""
    lost: int
    duplicated: int
    misplaced: int
    out_of_order: int
    foreign: int
    redelivered: int
    files: int
    files_identical: int
    files_different: tuple[str, ...]
    """Names of the first few files that could not be put together again."""

    @property
    def good(self) -> bool:
        """Everything published was acknowledged, and received once, in order, unchanged."""
        faults = self.lost + self.duplicated + self.misplaced + self.out_of_order + self.foreign
        complete = self.published == self.acknowledged == self.received
        return faults == 0 and complete and self.files == self.files_identical


_NAMES_SHOWN = 5


@dataclass(slots=True)
class _File:
    """What is known of one file; the arrays are indexed by line number."""

    content: bytes
    lines: list[bytes]
    partition: int = _NOWHERE
    acknowledged_at: array[int] = field(default_factory=lambda: array("q"))
    found_at: array[int] = field(default_factory=lambda: array("q"))
    received: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        nowhere = [_NOWHERE] * len(self.lines)
        self.acknowledged_at = array("q", nowhere)
        self.found_at = array("q", nowhere)
        self.received = [b""] * len(self.lines)


class Checker:
    """Collects what happened, then judges. Offsets are told per partition."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """`files` maps each name to the bytes that are published line by line."""
        self._files = {name: _File(data, sources.split(data)) for name, data in files.items()}
        self._published = 0
        self._acknowledged = 0
        self._seen: dict[int, set[int]] = {}
        self._last_offset: dict[tuple[str, int], int] = {}
        self._duplicated = 0
        self._redelivered = 0
        self._handed_backwards = 0
        self._foreign = 0
        self._wrong_partition = 0

    def lines(self, name: str) -> list[bytes]:
        """Return the lines of one file in order."""
        return self._files[name].lines

    def on_published(self, count: int) -> None:
        """Note that this many more records were handed to the publisher."""
        self._published += count

    def on_acknowledged(self, name: str, line: int, partition: int, offset: int) -> None:
        """Note where the publisher was told that a record is."""
        file = self._files[name]
        if file.acknowledged_at[line] == _NOWHERE:
            self._acknowledged += 1
        file.acknowledged_at[line] = offset
        self._place(file, partition)

    def on_assigned(self, member: str) -> None:
        """Note that a member got partitions: it may go back to the committed positions now."""
        for key in [key for key in self._last_offset if key[0] == member]:
            del self._last_offset[key]

    def on_received(
        self, member: str, partition: int, offset: int, name: str, line: int, value: bytes
    ) -> None:
        """Note one record as a member received it, in the order in which it did."""
        previous = self._last_offset.get((member, partition), _NOWHERE)
        self._last_offset[member, partition] = offset
        if offset <= previous:
            self._handed_backwards += 1
        seen = self._seen.setdefault(partition, set())
        if offset in seen:
            self._redelivered += 1
            return
        seen.add(offset)
        file = self._files.get(name)
        if file is None or not 0 <= line < len(file.lines) or file.lines[line] != value:
            self._foreign += 1
            return
        if file.found_at[line] != _NOWHERE:
            self._duplicated += 1
            return
        file.found_at[line] = offset
        file.received[line] = value
        self._place(file, partition)

    def _place(self, file: _File, partition: int) -> None:
        """A file lives in one partition: its records share a key."""
        if file.partition == _NOWHERE:
            file.partition = partition
        elif file.partition != partition:
            self._wrong_partition += 1

    def verdict(self) -> Verdict:
        """Judge what was told so far."""
        lost = misplaced = received = backwards = 0
        different = []
        for name, file in self._files.items():
            highest = _NOWHERE
            for acknowledged_at, found_at in zip(file.acknowledged_at, file.found_at, strict=True):
                if found_at == _NOWHERE:
                    lost += acknowledged_at != _NOWHERE
                    continue
                received += 1
                misplaced += acknowledged_at not in (_NOWHERE, found_at)
                backwards += found_at < highest
                highest = max(highest, found_at)
            if sources.join(file.received) != file.content:
                different.append(name)
        return Verdict(
            published=self._published,
            acknowledged=self._acknowledged,
            received=received,
            lost=lost,
            duplicated=self._duplicated,
            misplaced=misplaced + self._wrong_partition,
            out_of_order=backwards + self._handed_backwards,
            foreign=self._foreign,
            redelivered=self._redelivered,
            files=len(self._files),
            files_identical=len(self._files) - len(different),
            files_different=tuple(different[:_NAMES_SHOWN]),
        )

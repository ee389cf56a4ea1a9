"""What transactions that read and append to lists must never show, by Adya's and Jepsen's names.

Each partition of a topic is a list, and each transaction reads what has come to all of them since
it last looked, and appends to some. Its process notes, one JSON object a line:

    {"f": "begin", "id": i, "n": n, "commit": true, "appends": {"0": [v, ...], ...}}
    {"f": "read", "id": i, "n": n, "reader": r, "rows": [[partition, offset, v], ...]}
    {"f": "end", "id": i, "n": n}       it was told that this has ended as it wished

`id` is a transactional id and `n` grows with each of its transactions; `reader` is a consumer from
its start to its end. Values are `i:n:...`, once each. The lists at the end come from a reader of
committed data. A transaction without an end may have committed or not.

Kafka isolates nothing between producers: two of them may append to two lists in different orders,
and that is no anomaly. Among the transactions of one id there is an order, and G0 is judged in it;
G1c looks at who read whose appends, and at that order.
"""

from __future__ import annotations

import graphlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.chaos.judges.checkers import Anomaly

Lists = Mapping[int, Sequence[tuple[int, str]]]
"""partition -> (offset, value) in order."""
Name = tuple[str, int]
"""(id, n) of a transaction."""


class Transaction:
    """What is known of one transaction."""

    def __init__(self, begin: Mapping[str, Any]) -> None:
        self.name: Name = (begin["id"], begin["n"])
        self.commit: bool = begin["commit"]
        self.ended = False
        self.appends: dict[int, list[str]] = {int(p): vs for p, vs in begin["appends"].items()}
        self.read: list[str] = []


class _Read(NamedTuple):
    partition: int
    offset: int
    value: str


class Histories:
    """All notes, and the lists as they are at the end."""

    def __init__(self, events: Iterable[Mapping[str, Any]], lists: Lists) -> None:
        self.lists = lists
        self.transactions: dict[Name, Transaction] = {}
        self.readers: dict[str, list[_Read]] = defaultdict(list)
        for event in events:
            name = (event["id"], event["n"])
            if event["f"] == "begin":
                self.transactions[name] = Transaction(event)
            elif event["f"] == "end":
                self.transactions[name].ended = True
            elif event["f"] == "read":
                rows = [_Read(*row) for row in event["rows"]]
                self.readers[event["reader"]] += rows
                self.transactions[name].read += [row.value for row in rows]
        self.there = Counter(value for rows in lists.values() for _, value in rows)

    def committed(self) -> list[Transaction]:
        """Return the transactions of which something is in the lists."""
        return [one for one in self.transactions.values() if any(self._found(one))]

    def _found(self, one: Transaction) -> list[bool]:
        return [bool(self.there[value]) for values in one.appends.values() for value in values]

    def anomalies(self) -> list[Anomaly]:
        """Return everything that is wrong; nothing if all is well."""
        found = {
            "lost-write": self._lost(),
            "duplicate": [f"{value} x{n}" for value, n in self.there.items() if n > 1],
            "torn-transaction": self._torn(),
            "G1a aborted-read": self._aborted_reads(),
            "G1b intermediate-read": self._skipped(),
            "G0 write-cycle": self._disorder(),
            "G1c circular-information-flow": self._circle(),
        }
        return [
            Anomaly(name, f"{len(texts)}, as {', '.join(texts[:5])}")
            for name, texts in found.items()
            if texts
        ]

    def _lost(self) -> list[str]:
        """Committed, and not in the lists."""
        return [
            value
            for one in self.transactions.values()
            if one.commit and one.ended
            for values in one.appends.values()
            for value in values
            if not self.there[value]
        ]

    def _torn(self) -> list[str]:
        """Some of a transaction is there, and some is not."""
        return [
            f"{one.name}" for one in self.transactions.values() if len(set(self._found(one))) > 1
        ]

    def _aborted_reads(self) -> list[str]:
        """Read, now or at the end, though it was aborted, or never appended."""
        known = {
            value: one
            for one in self.transactions.values()
            for values in one.appends.values()
            for value in values
        }
        wrong = [v for v in self.there if v not in known or not known[v].commit]
        return wrong + [
            f"{reader}: {row.value}"
            for reader, rows in self.readers.items()
            for row in rows
            if not self.there[row.value]
        ]

    def _skipped(self) -> list[str]:
        """A reader saw some of a list and passed over a part of it, of a transaction or whole."""
        wrong = []
        for reader, rows in self.readers.items():
            by_partition: dict[int, dict[int, str]] = defaultdict(dict)
            for row in rows:
                by_partition[row.partition][row.offset] = row.value
            for partition, seen in by_partition.items():
                first, last = min(seen), max(seen)
                wanted = {at: v for at, v in self.lists[partition] if first <= at <= last}
                if {at: v for at, v in seen.items() if self.there[v]} != wanted:
                    missing = sorted(set(wanted.values()) - set(seen.values()))
                    wrong.append(f"{reader} in {partition}: {missing or 'another order'}")
        return wrong

    def _disorder(self) -> list[str]:
        """Transactions of one id stand in a list in another order than they were made in."""
        wrong = []
        for partition, rows in self.lists.items():
            last: dict[str, tuple[int, ...]] = {}
            for _, value in rows:
                name, *numbers = value.split(":")
                place = tuple(map(int, numbers))
                if place <= last.get(name, (-1,)):
                    wrong.append(f"{value} in {partition}")
                last[name] = place
        return wrong

    def _circle(self) -> list[str]:
        """Transactions that have read of each other, in a circle."""
        writer = {
            value: one.name
            for one in self.transactions.values()
            for values in one.appends.values()
            for value in values
        }
        committed = {one.name for one in self.committed()}
        before: dict[Name, set[Name]] = {name: set() for name in committed}
        for name in committed:
            read = {writer[v] for v in self.transactions[name].read if v in writer}
            before[name] |= (read & committed) - {name}
        latest: dict[str, Name] = {}
        for name in sorted(committed):
            if name[0] in latest:
                before[name].add(latest[name[0]])
            latest[name[0]] = name
        own = [
            f"{name} reads its own {value}"
            for name in sorted(committed)
            for value in self.transactions[name].read
            if writer.get(value) == name
        ]
        try:
            graphlib.TopologicalSorter(before).prepare()
        except graphlib.CycleError as error:
            return [*own, " -> ".join(map(str, error.args[1]))]
        return own


def copied(source: Lists, derived: Lists) -> list[Anomaly]:
    """Judge a copy, `partition:offset=value` of each record, that promises each of them once."""
    wanted = Counter(f"{p}:{at}={value}" for p, rows in source.items() for at, value in rows)
    found = Counter(value for rows in derived.values() for _, value in rows)
    wrong = {
        "lost-write": [*(wanted - found)],
        "duplicate": [value for value, n in found.items() if n > 1],
        "aborted-read": [value for value in found if value not in wanted],
        "disorder": _disorder(derived),
    }
    return [
        Anomaly(f"exactly-once {name}", f"{len(texts)}, as {', '.join(texts[:5])}")
        for name, texts in wrong.items()
        if texts
    ]


def _disorder(derived: Lists) -> list[str]:
    """Records of one partition that do not stand in the copy in the order in which they came."""
    wrong = []
    for rows in derived.values():
        last: dict[str, int] = {}
        for _, value in rows:
            partition, _, rest = value.partition(":")
            offset = int(rest.partition("=")[0])
            if offset <= last.get(partition, -1):
                wrong.append(value)
            last[partition] = offset
    return wrong

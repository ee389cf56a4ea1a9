"""Writers of Apache's client that stop: why, and the one reason that is Apache's own.

Apache's handle can forget acknowledged adds until another add is acknowledged
(`java/Pending.java` says how, `test_forgotten_adds.py` shows it on Apache's bookies alone). A
writer that waits for its window then waits for good. `Peer.java` appends one entry more in this
case, after it saw that nothing else is under way, and tells of it; whoever uses a stream lets
`show_forgotten` say so. A writer that stops for any other reason fails the test, with `explain`.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from tests.interop.bookkeeper.cluster import BookieTree
from tests.interop.bookkeeper.peer import Call, Peer, PeerError, PeerSilent

_WRITE_QUORUM = 3


class Stream:
    """A ledger that a Java writer fills until it is killed."""

    def __init__(self, writer: Peer, root: str, *, digest: str, v2: str) -> None:
        secret = {"digest": digest, "password": "secret"}
        conf = {"useV2WireProtocol": v2}
        made = writer.call("create", root, e=4, qw=_WRITE_QUORUM, conf=conf, **secret)
        self.ledger: int = made["ledger"]
        self.handle: int = made["handle"]
        self.digest = digest
        self.call: Call = writer.start("stream", root, handle=self.handle)


async def all_go_on(streams: Iterable[Stream], count: int, writer: Peer, tree: BookieTree) -> None:
    """Wait until each has so many more entries acknowledged. Fails, with reasons, if one stops."""
    for stream in streams:
        try:
            await asyncio.to_thread(stream.call.wait_acked, stream.call.acked + count)
        except PeerSilent as silent:
            writer.dump_threads()  # into its log
            why = await asyncio.to_thread(explain, stream.ledger, stream.handle, writer, tree)
            raise AssertionError(f"ledger {stream.ledger}: {silent}\n{why}") from silent


def explain(ledger: int, handle: int, writer: Peer, tree: BookieTree) -> str:
    """Say what a writer waits for: the adds, the bookies, and whether ours have the entries."""
    pending = writer.call("pending", tree.root, handle=handle)
    adds = pending.pop("adds")
    lines = [f"{name}: {value}" for name, value in pending.items()]
    last = max((add["entry"] for add in adds), default=-1)
    held: dict[str, Callable[[int], str]] = {}
    for add in adds:
        lines.append(f"entry {add['entry']}: {add}")
        for bookie in _write_set(add):
            if bookie not in add["acked"]:
                if bookie not in held:
                    held[bookie] = _holdings(bookie, ledger, last, writer, tree)
                lines.append(f"    {bookie}: {held[bookie](add['entry'])}")
    return "\n".join(lines)


def _write_set(add: dict[str, Any]) -> list[str]:
    ensemble, entry = add["ensemble"], add["entry"]
    return [ensemble[(entry + i) % len(ensemble)] for i in range(min(_WRITE_QUORUM, len(ensemble)))]


def _holdings(
    bookie: str, ledger: int, last: int, writer: Peer, tree: BookieTree
) -> Callable[[int], str]:
    """Return what says of an entry whether a bookie has it. Only bookies of ours are asked."""
    (node,) = (node for node in tree.nodes.values() if node.bookie_id == bookie)
    if not node.runs:
        return lambda entry: f"{node.name}, killed"
    if node not in tree.quire:
        return lambda entry: node.name
    try:
        found = writer.call("entries", tree.root, bookie=bookie, ledger=ledger, last=last)
    except PeerError as error:
        silent = f"{node.name}, does not say whether it has it: {error}"
        return lambda entry: silent
    has = frozenset(found["entries"])
    return lambda entry: f"{node.name}, {'has' if entry in has else 'has not got'} it"


def show_forgotten(streams: Iterable[Stream]) -> None:
    """Warn of each time that a handle forgot acknowledged adds."""
    for stream in streams:
        for pending in stream.call.forgotten:
            entries = [add["entry"] for add in pending["adds"]]
            warnings.warn(
                f"Apache's client forgot the acknowledged entries {entries} of ledger"
                f" {stream.ledger} (BookKeeper issue 4261)",
                stacklevel=2,
            )

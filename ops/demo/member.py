"""A member of the demonstration's group, a process of its own: reads records, writes a journal.

    python -m ops.demo.member BOOTSTRAP_SERVERS TOPIC GROUP JOURNAL

It commits each batch after writing it to the journal and reports its progress on stdout as lines
of JSON. It leaves the group and ends when its stdin is closed, so it never outlives the
demonstration.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import BinaryIO, Final

from client.pubsub import Record, Subscriber
from client.pubsub.errors import CommitFailed, PubSubError
from ops.demo import journal

LINE_HEADER: Final = "line"
"""Name of the record header with the line number, in decimal."""

_REPORT_INTERVAL_S: Final = 0.2


async def follow(bootstrap_servers: str, topic: str, group: str, out: BinaryIO) -> None:
    """Read until stdin closes."""
    member = _Member(out)
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, closed.set)
    async with Subscriber(
        topic,
        bootstrap_servers=bootstrap_servers,
        group=group,
        client_id="quire-demo-member",
        session_timeout_ms=6000,
        on_assigned=member.on_assigned,
    ) as subscriber:
        while not closed.is_set():
            try:
                records = await subscriber.next_batch(timeout_ms=200)
                member.write(records)
                if records:
                    await subscriber.commit()
            except CommitFailed:
                member.commit_failures += 1  # these records come again, to us or to another member
            member.report(loop.time())
    member.report(loop.time(), force=True)


class _Member:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._received = 0
        self._positions: dict[int, int] = {}
        self._reported_s = 0.0
        self.commit_failures = 0

    def on_assigned(self, _: list[tuple[str, int]]) -> None:
        self._out.write(journal.ASSIGNED)

    def write(self, records: list[Record]) -> None:
        """Write records to the journal, so that they survive this process, before a commit."""
        for record in records:
            line = int(dict(record.headers)[LINE_HEADER])
            key, value = record.key or b"", record.value or b""
            self._out.write(journal.pack(record.partition, record.offset, line, key, value))
            self._positions[record.partition] = record.offset + 1
        self._out.flush()
        self._received += len(records)

    def report(self, now_s: float, *, force: bool = False) -> None:
        """Print progress, but not too often."""
        if not force and now_s - self._reported_s < _REPORT_INTERVAL_S:
            return
        self._reported_s = now_s
        progress = {
            "received": self._received,
            "positions": self._positions,
            "commit_failures": self.commit_failures,
        }
        sys.stdout.write(json.dumps(progress) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Run one member from the command line."""
    bootstrap_servers, topic, group, path = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    try:
        with Path(path).open("wb") as out:
            asyncio.run(follow(bootstrap_servers, topic, group, out))
    except PubSubError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

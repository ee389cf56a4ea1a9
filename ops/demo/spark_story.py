"""The Spark demonstration, step by step: publish source lines, count them live, compare.

Lines are published while the query runs; the table shows what Spark has counted so far. At the end
every count is compared with a plain one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from client.pubsub import Publisher, TopicAdmin
from ops.demo import sources, words
from ops.demo.spark_counts import LiveCounts, SparkFailed
from ops.demo.spark_display import ROWS, SparkDisplay, SparkReport

TOPIC: Final = "standard-library"
PARTITION_COUNT: Final = 4

_TICK_S: Final = 0.25
_STANDSTILL_TIMEOUT_S: Final = 120.0


class SparkStory:
    """One run over `files`."""

    def __init__(self, files: Mapping[str, bytes], display: SparkDisplay, folder: Path) -> None:
        self._files = files
        self._lines = {name: sources.split(content) for name, content in files.items()}
        self._line_count = sum(map(len, self._lines.values()))
        self._display = display
        self._folder = folder
        self._published = 0

    async def run(self, bootstrap_servers: str) -> SparkReport:
        """Publish, count, compare. Raises SparkFailed, PubSubError."""
        async with TopicAdmin(bootstrap_servers) as topics:
            await topics.create(TOPIC, partition_count=PARTITION_COUNT)
        live = LiveCounts(bootstrap_servers, TOPIC, self._folder)
        loop = asyncio.get_running_loop()
        try:
            self._display.say("starting Spark: two task slots, a stream of the topic, no jar")
            await asyncio.to_thread(live.start)
            self._display.say(
                f"publishing {self._line_count:,} lines of {len(self._files):,} files"
            )
            started_s = loop.time()
            with self._display.counting(self._line_count):
                publishing = asyncio.create_task(self._publish(bootstrap_servers))
                try:
                    await self._watch(live, publishing)
                finally:
                    publishing.cancel()
                published_s = await publishing
            counted_s = loop.time()
            self._display.say("counting once more, in plain Python")
            counts = live.counts
        finally:
            await asyncio.to_thread(live.close)
        expected = words.count(line for lines in self._lines.values() for line in lines)
        return SparkReport(
            files=len(self._files),
            lines=self._line_count,
            distinct=len(expected) - 1,
            batches=live.batches,
            publish_s=published_s - started_s,
            count_s=counted_s - started_s,
            differences=tuple(words.differences(expected, counts)),
        )

    async def _publish(self, bootstrap_servers: str) -> float:
        """Publish every line, keyed by its file; return the time of the last acknowledgement."""
        async with Publisher(bootstrap_servers, client_id="quire-demo") as publisher:
            for name, lines in self._lines.items():
                key = name.encode()
                for line in lines:
                    await publisher.enqueue(TOPIC, line, key=key)
                self._published += len(lines)
            await publisher.flush()
        return asyncio.get_running_loop().time()

    async def _watch(self, live: LiveCounts, publishing: asyncio.Task[float]) -> None:
        """Show the counts until all lines are counted.

        Raises SparkFailed when the query ends early or nothing is counted for two minutes.
        """
        loop = asyncio.get_running_loop()
        batches, moved_s = 0, loop.time()
        standing = words.standing(live.counts, ROWS)
        while not publishing.done() or live.line_count < self._line_count:
            if publishing.done():
                publishing.result()
            live.check()
            if live.batches != batches:
                batches, moved_s = live.batches, loop.time()
                standing = words.standing(live.counts, ROWS)
            self._display.show(standing, self._published)
            if loop.time() - moved_s > _STANDSTILL_TIMEOUT_S:
                raise SparkFailed(
                    f"only {standing.lines:,} of {self._line_count:,} lines were counted, and"
                    f" nothing moved for {_STANDSTILL_TIMEOUT_S:g} s"
                )
            await asyncio.sleep(_TICK_S)
        self._display.show(words.standing(live.counts, ROWS), self._published)

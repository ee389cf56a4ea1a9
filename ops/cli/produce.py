"""`quire produce`: publish lines of files or of stdin, a record per line."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from client.errors import QuireError
from client.pubsub import Address, Publisher, PubSubError
from client.pubsub.brokers import Brokers
from ops.amounts import count, size
from ops.cli import lines
from ops.cli.addresses import bootstrap_option
from ops.cli.console import is_interactive, json_option, print_json, run, say

_SILENCE_S: Final = 10.0
_CHUNK_SIZE: Final = 256 * 1024
_STDIN: Final = "-"


@click.command()
@click.argument("topic")
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE...]",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help=r"What stands between key and value in each line; \t is a tab. Records with the same "
    "key stay in order. [default: lines have no key]",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Publish to this partition. [default: chosen by key, or spread when there is none]",
)
@json_option
@bootstrap_option
def produce(
    topic: str,
    files: tuple[str, ...],
    key_separator: str | None,
    partition: int | None,
    as_json: bool,
    bootstrap_servers: Brokers,
) -> None:
    """Publish every line of the FILEs, or of stdin, as a record of TOPIC.

    It ends when every record is safely stored; only then is the exit code 0. A topic that does
    not exist is created with the brokers' defaults, if they allow that.

    \b
    Examples:
      echo hello | quire produce greetings
      quire produce users passwd.txt --key-separator :
    """
    publication = _Publication(topic, partition)

    async def work() -> None:
        separator = None if key_separator is None else lines.separator(key_separator)
        async with Publisher(bootstrap_servers, client_id="quire-produce") as publisher:
            watch = asyncio.create_task(publication.watch(publisher))
            try:
                with publication.progress(files):
                    for name in files or (_STDIN,):
                        await publication.publish_file(publisher, name, separator)
                    await publisher.flush()
            except lines.LineError as error:
                await publisher.flush()
                raise publication.stopped_by(error) from error
            finally:
                watch.cancel()
        publication.summarise(as_json)

    run(work())


class _Publication:
    """What one run of the command has published so far."""

    def __init__(self, topic: str, partition: int | None) -> None:
        self._topic = topic
        self._partition = partition
        self._record_count = 0
        self._size = 0
        self._acknowledged = 0
        self._failure: PubSubError | None = None
        self._offsets: dict[int, tuple[int, int]] = {}
        self._started_s = 0.0
        self._bar: Progress | None = None

    def progress(self, files: tuple[str, ...]) -> Progress | nullcontext[None]:
        """Return what shows progress while records flow: nothing unless a person watches."""
        self._started_s = asyncio.get_running_loop().time()
        if not is_interactive():
            return nullcontext()
        if (not files or _STDIN in files) and sys.stdin.isatty():
            say("Type a record per line. Ctrl-D ends.")
            return nullcontext()
        self._bar = Progress(
            TextColumn("{task.fields[records]:,} records"),
            TextColumn("{task.fields[acknowledged]:,} stored"),
            TextColumn("{task.fields[rate]}/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=5,
        )
        self._bar.add_task("", total=None, records=0, acknowledged=0, rate="0 bytes")
        return self._bar

    async def watch(self, publisher: Publisher) -> None:
        """Tell people when nothing is acknowledged any more: it may be waiting for brokers."""
        while True:
            acknowledged = self._acknowledged
            await asyncio.sleep(_SILENCE_S)
            if publisher.unacknowledged and self._acknowledged == acknowledged:
                waiting = count(publisher.unacknowledged, "record")
                say(f"No broker has stored anything for {_SILENCE_S:g} s; {waiting} on the way.")

    async def publish_file(
        self, publisher: Publisher, name: str, key_separator: bytes | None
    ) -> None:
        """Publish the lines of one file, or of stdin; say which line cannot be a record."""
        splitter = lines.LineSplitter()
        line_number = 0
        try:
            async for chunk in _chunks(name):
                for line in splitter.feed(chunk):
                    line_number += 1
                    await self._publish_line(publisher, line, key_separator)
                self._show()
            for line in splitter.finish():
                line_number += 1
                await self._publish_line(publisher, line, key_separator)
        except lines.LineError as error:
            where = "stdin" if name == _STDIN else name
            raise lines.LineError(f"{where}, line {line_number}: {error}") from error

    async def _publish_line(
        self, publisher: Publisher, line: bytes, key_separator: bytes | None
    ) -> None:
        if self._failure is not None:
            raise self._failure
        key, value = lines.to_record(line, key_separator)
        await publisher.enqueue(
            self._topic, value, key=key, partition=self._partition, on_done=self._on_done
        )
        self._record_count += 1
        self._size += len(line)

    def _on_done(self, outcome: Address | PubSubError) -> None:
        if not isinstance(outcome, Address):
            self._failure = self._failure or outcome
            return
        self._acknowledged += 1
        first, last = self._offsets.get(outcome.partition, (outcome.offset, outcome.offset))
        self._offsets[outcome.partition] = min(first, outcome.offset), max(last, outcome.offset)

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                records=self._record_count,
                acknowledged=self._acknowledged,
                rate=size(round(self._size / self._seconds())),
            )

    def _seconds(self) -> float:
        return max(asyncio.get_running_loop().time() - self._started_s, 1e-3)

    def stopped_by(self, error: QuireError) -> QuireError:
        """Say what stopped the publication and what is stored nevertheless."""
        stored = count(self._acknowledged, "record")
        return QuireError(f"{error}; stored before it: {stored}")

    def summarise(self, as_json: bool) -> None:
        """Print what was stored. Raises what failed."""
        if self._failure is not None:
            raise self.stopped_by(self._failure)
        seconds = self._seconds()
        if as_json:
            offsets = {
                str(partition): {"first": first, "last": last}
                for partition, (first, last) in sorted(self._offsets.items())
            }
            print_json(
                {
                    "topic": self._topic,
                    "records": self._acknowledged,
                    "bytes": self._size,
                    "seconds": round(seconds, 3),
                    "offsets": offsets,
                }
            )
            return
        rate = f"{self._acknowledged / seconds:,.0f} records/s"
        stored = f"{count(self._acknowledged, 'record')} ({size(self._size)})"
        say(f"Stored {stored} in {self._topic} in {seconds:.1f} s, {rate}.")


async def _chunks(name: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file as they come; stdin may be a terminal, a pipe or a file."""
    fd = sys.stdin.fileno() if name == _STDIN else os.open(name, os.O_RDONLY)
    try:
        # A regular file is always readable, and the event loop refuses to watch it.
        watch = not stat.S_ISREG(os.fstat(fd).st_mode)
        while True:
            if watch:
                await _readable(fd)
            chunk = os.read(fd, _CHUNK_SIZE)
            if not chunk:
                return
            yield chunk
    finally:
        if name != _STDIN:
            os.close(fd)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(fd, readable.set_result, None)
    except PermissionError:
        return  # some devices cannot be watched either, like /dev/null
    try:
        await readable
    finally:
        loop.remove_reader(fd)

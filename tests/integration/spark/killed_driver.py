"""A driver with several queries, each of which waits at a step of a microbatch for its death.

`python -m tests.integration.spark.killed_driver SERVERS TOPIC FOLDER STEP...` reads a topic from
its end, once for each STEP: the first query into FOLDER/0/out, one file per batch, with its
checkpoint beside it, the second one into FOLDER/1, and so on. A query that has come to its step
says so with a file `reached` and does nothing more. With step `none` it ends when everything is
read; the program ends when all queries have.

Most of what a driver costs is its start: so one has several queries, and the next one starts when
the one before is up, for Spark gives its Python processes ten seconds to come.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from client.spark.options import Options
from client.spark.read.stream_reader import QuireStreamReader
from client.spark.source import QuireSource

STEPS = (
    "after the offsets are written",
    "while a task reads",
    "before the sink writes",
    "after the sink wrote",
    "before the offsets are written",
    "when the source is told of the commit",
)
"""Those before the offsets are written and of the commit come in a later batch than the first."""

NONE = "none"
BEGUN, UP, REACHED, OUT = "begun", "up", "reached", "out"
UP_S = 100.0


class Place:
    """Where one query keeps its files, and at which step it stops."""

    def __init__(self, folder: Path, step: str) -> None:
        self.folder = folder
        self._step = step

    def at(self, step: str) -> None:
        """Wait here for the end, if this is the step."""
        if step != self._step:
            return
        (self.folder / REACHED).touch()
        parent = os.getppid()
        while os.getppid() == parent:  # Spark's processes end with the driver, so must we
            time.sleep(0.05)
        os._exit(1)

    def come_up(self) -> None:
        """Say that Spark has asked the reader something."""
        (self.folder / UP).touch()

    def has_begun(self) -> bool:
        """Whether a first batch has been planned."""
        return any((self.folder / "checkpoint" / "offsets").glob("[0-9]*"))

    def has_written(self) -> bool:
        """Whether a batch has been written."""
        return any((self.folder / OUT).glob("*.json"))


class StoppingReader(QuireStreamReader):
    """Our reader, with the steps at which Spark calls it."""

    def __init__(self, options: Options, place: Place) -> None:
        super().__init__(options)
        self._place = place

    def initialOffset(self) -> Any:
        self._place.come_up()
        offset = super().initialOffset()
        (self._place.folder / BEGUN).touch()
        return offset

    def latestOffset(self, start: Any, limit: Any) -> Any:
        self._place.come_up()
        end = super().latestOffset(start, limit)
        while json.dumps(end) == json.dumps(start) and not self._place.has_begun():
            time.sleep(0.05)  # Spark would make an empty batch of it, which has nothing to lose
            end = super().latestOffset(start, limit)
        if json.dumps(end) != json.dumps(start) and self._place.has_written():
            self._place.at("before the offsets are written")
        return end

    def partitions(self, start: Any, end: Any) -> Any:
        self._place.come_up()
        self._place.at("after the offsets are written")
        return super().partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        for rows in super().read(partition):
            yield rows
            self._place.at("while a task reads")

    def commit(self, end: Any) -> None:
        self._place.at("when the source is told of the commit")
        super().commit(end)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_place": self._place}


class StoppingSource(QuireSource):
    """Format `quire-killed`."""

    @classmethod
    def name(cls) -> str:
        return "quire-killed"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._place = Place(Path(options.pop("folder")), options.pop("step"))
        super().__init__(options)

    def streamReader(self, schema: StructType) -> StoppingReader:
        return StoppingReader(self._parsed(schema, streaming=True), self._place)


def sink(place: Place) -> Callable[[Any, int], None]:
    """Return what writes a batch: the whole of it or nothing."""
    out = place.folder / OUT
    out.mkdir(parents=True, exist_ok=True)

    def write(frame: Any, number: int) -> None:
        place.at("before the sink writes")
        numbers = [int(row.value) for row in frame.select("value").collect()]
        part = out / f".{number}.part"
        part.write_text(json.dumps(numbers))
        part.rename(out / f"{number}.json")
        place.at("after the sink wrote")

    return write


def start(writer: DataStreamWriter, place: Place) -> StreamingQuery:
    """Start a query, and again if Spark gave up on its Python process before that was up."""
    up = place.folder / UP
    up.unlink(missing_ok=True)
    query = writer.start()
    deadline = time.monotonic() + UP_S
    while not up.exists() and time.monotonic() < deadline:
        if not query.isActive:
            query = writer.start()
        time.sleep(0.05)
    return query


def main(servers: str, topic: str, folder: Path, steps: list[str]) -> None:
    spark = (
        # A slot for the task that waits, and some for those that do not.
        SparkSession.builder.master("local[4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    )  # fmt: skip
    spark.dataSource.register(StoppingSource)
    queries = []
    for number, step in enumerate(steps):
        place = Place(folder / str(number), step)
        writer = (
            spark.readStream.format("quire-killed")
            .option("folder", str(place.folder)).option("step", step)
            .option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
            .writeStream.foreachBatch(sink(place))
            .option("checkpointLocation", str(place.folder / "checkpoint"))
        )  # fmt: skip
        queries.append(start(writer.trigger(availableNow=True) if step == NONE else writer, place))
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    # Spark pickles by reference what can be imported: use the module's classes, not __main__'s.
    from tests.integration.spark import killed_driver

    killed_driver.main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])

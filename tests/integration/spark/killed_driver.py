"""A driver that kills itself, with its JVM, at a chosen step of a microbatch.

`python -m tests.integration.spark.killed_driver SERVERS TOPIC FOLDER STEP` reads a topic from its
end into FOLDER/out, one file per batch. With STEP `none` it ends when everything is read. The
steps that happen in Spark's own processes are told by the environment, which those inherit.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from client.spark.source import QuireSource
from client.spark.stream_reader import QuireStreamReader

STEP, GROUP, FOLDER = "QUIRE_TEST_STEP", "QUIRE_TEST_GROUP", "QUIRE_TEST_FOLDER"


def reached(step: str) -> None:
    """Die here, all of us at once, if this is the step."""
    if os.environ[STEP] == step:
        os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
        signal.pause()  # a Python worker is in a group of its own: it ends with its JVM


class KillingReader(QuireStreamReader):
    """Our reader, with the steps at which Spark calls it."""

    def initialOffset(self) -> Any:
        offset = super().initialOffset()
        Path(os.environ[FOLDER], "begun").touch()
        return offset

    def latestOffset(self, start: Any, limit: Any) -> Any:
        end = super().latestOffset(start, limit)
        if json.dumps(end) != json.dumps(start):
            reached("before the offsets are written")
        return end

    def partitions(self, start: Any, end: Any) -> Any:
        reached("after the offsets are written")
        return super().partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        for rows in super().read(partition):
            yield rows
            reached("while a task reads")

    def commit(self, end: Any) -> None:
        reached("when the source is told of the commit")
        super().commit(end)


class KillingSource(QuireSource):
    """Format `quire-killed`."""

    @classmethod
    def name(cls) -> str:
        return "quire-killed"

    def streamReader(self, schema: StructType) -> KillingReader:
        return KillingReader(self._parsed(schema, streaming=True))


def main(servers: str, topic: str, folder: Path, step: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    )  # fmt: skip
    spark.dataSource.register(KillingSource)
    out = folder / "out"
    out.mkdir(exist_ok=True)

    def write(frame: Any, number: int) -> None:
        reached("before the sink writes")
        numbers = [int(row.value) for row in frame.select("value").collect()]
        part = out / f".{number}.part"
        part.write_text(json.dumps(numbers))
        part.rename(out / f"{number}.json")
        reached("after the sink wrote")

    writer = (
        spark.readStream.format("quire-killed")
        .option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
        .writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    )  # fmt: skip
    query = (writer.trigger(availableNow=True) if step == "none" else writer).start()
    query.awaitTermination()


if __name__ == "__main__":
    # Spark pickles by reference what can be imported: use the module's class, not __main__'s.
    from tests.integration.spark import killed_driver

    os.environ[STEP], os.environ[GROUP] = sys.argv[4], str(os.getpgrp())
    os.environ[FOLDER] = sys.argv[3]
    killed_driver.main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])

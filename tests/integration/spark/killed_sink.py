"""A driver whose queries write exactly once, and each of which waits at a step for its death.

`python -m tests.integration.spark.killed_sink SERVERS TOPIC FOLDER STEP...` copies a topic into
`TOPIC-0`, `TOPIC-1` and so on, once for each STEP. A query that has come to its step says so with a
file `reached` in FOLDER/0, FOLDER/1 and so on, and does nothing more. With step `none` it ends when
everything is copied.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from client.spark.source import QuireSource
from client.spark.write.exactly_once import protocol
from client.spark.write.exactly_once.decision import Decision
from client.spark.write.exactly_once.protocol import Sink, Steps
from client.spark.write.exactly_once.stream_writer import ExactlyOnceStreamWriter
from client.spark.write.writer_options import WriterOptions, parse_writer_options
from tests.integration.spark.killed_driver import Place

WRITTEN = "while tasks have written, and nothing is decided"
DECIDED = "when the batch is decided, and not ended"
ENDED = "when the batch is ended, and Spark does not know"
STEPS = (WRITTEN, DECIDED, ENDED)


class StoppingWriter(ExactlyOnceStreamWriter):
    """Our writer, with the steps of a commit."""

    def __init__(self, options: WriterOptions, place: Place) -> None:
        super().__init__(options)
        self._place = place

    def commit(self, messages: list[Any], batchId: int) -> None:
        place = self._place
        place.at(WRITTEN)
        finish = protocol._finish

        def stops(sink: Sink, decision: Decision) -> Steps[None]:
            place.at(DECIDED)
            yield from finish(sink, decision)

        protocol._finish = stops
        super().commit(messages, batchId)
        place.at(ENDED)


class StoppingSink(QuireSource):
    """Format `quire-once-killed`."""

    @classmethod
    def name(cls) -> str:
        return "quire-once-killed"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._place = Place(Path(options.pop("folder")), options.pop("step"))
        super().__init__(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoppingWriter:
        return StoppingWriter(parse_writer_options(self.options), self._place)


def main(servers: str, topic: str, folder: Path, steps: list[str]) -> None:
    spark = (
        SparkSession.builder.master("local[4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    )  # fmt: skip
    spark.dataSource.register(StoppingSink)
    queries = [_start(spark, servers, topic, folder, *one) for one in enumerate(steps)]
    for query in queries:
        query.awaitTermination()


def _start(
    spark: SparkSession, servers: str, topic: str, folder: Path, number: int, step: str
) -> Any:
    place = folder / str(number)
    place.mkdir(parents=True, exist_ok=True)
    records = (
        spark.readStream.format("quire")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic).option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60").load()
    )  # fmt: skip
    writer = (
        records.select("key", "value").writeStream.format("quire-once-killed")
        .option("folder", str(place)).option("step", step)
        .option("kafka.bootstrap.servers", servers).option("topic", f"{topic}-{number}")
        .option("deliveryGuarantee", "exactly-once").option("sinkId", f"{topic}-{number}")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
    )  # fmt: skip
    return writer.start()


if __name__ == "__main__":
    # Spark pickles by reference what can be imported: use the module's classes, not __main__'s.
    from tests.integration.spark import killed_sink

    killed_sink.main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])

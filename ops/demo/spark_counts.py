"""The streaming query of the Spark demonstration: source lines in, running counts out.

Covers Spark in the demonstration. The query is what an application would write: a topic as a
stream, functions of Spark SQL, an aggregation, and a function that is given the counts that
changed in each batch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from client.errors import QuireError
from ops.demo.words import IMPORT, IMPORTS, KEYWORDS, LINES, NAME, NAMES, Counts

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
}


_BATCH_LINES: Final = 60_000
"""At most this many lines are counted at once, so that the table moves."""


class SparkFailed(QuireError):
    """Spark did not start, or its query ended."""


class LiveCounts:
    """Counts a topic's lines for as long as it is open; `counts` may be read at any time."""

    def __init__(self, bootstrap_servers: str, topic: str, folder: Path) -> None:
        """`folder` gets the query's checkpoint, and what Spark says."""
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._folder = folder
        self._lock = threading.Lock()
        self._counts: Counts = Counter()
        self._spark: SparkSession | None = None
        self._query: Any = None
        self.batches = 0
        """Batches that were counted."""

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        with self._lock:
            return Counter(self._counts)

    @property
    def line_count(self) -> int:
        """Lines that were counted so far."""
        with self._lock:
            return self._counts[LINES, ""]

    def start(self) -> None:
        """Start Spark and the query. Raises SparkFailed."""
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        try:
            builder = SparkSession.builder.master("local[2]").appName("quire-demo")
            for name, value in _SETTINGS.items():
                builder = builder.config(name, value)
            with _stderr_to(self._folder / "spark.log"):
                self._spark = builder.getOrCreate()
        except Exception as error:  # PySpark raises whatever went wrong with its JVM
            raise SparkFailed(f"Spark did not start, it needs Java 17: {error}") from error
        lines = (
            self._spark.readStream.format("quire")
            .option("kafka.bootstrap.servers", self._bootstrap_servers)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("columns", "value")
            .option("maxOffsetsPerTrigger", _BATCH_LINES)
            .load()
        )
        self._query = (
            count_words(lines)
            .writeStream.foreachBatch(self._on_batch)
            .outputMode("update")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )

    def check(self) -> None:
        """Raise SparkFailed if the query has ended."""
        if self._query is not None and not self._query.isActive:
            raise SparkFailed(f"the query ended: {self._query.exception()}")

    def close(self) -> None:
        """Stop the query and Spark."""
        if self._query is not None:
            self._query.stop()
        if self._spark is not None:
            self._spark.stop()

    def _on_batch(self, changed: DataFrame, _batch_id: int) -> None:
        columns = changed.toArrow().to_pydict()
        with self._lock:
            for kind, text, number in zip(*columns.values(), strict=True):
                self._counts[kind, text] = number
            self.batches += 1


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Have programs that are started meanwhile write their stderr to a file."""
    ours = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(log)


def count_words(lines: DataFrame) -> DataFrame:
    """Return (kind, text, count) of what is in the column value, as `words.count` counts it."""
    line = F.col("value").cast("string")
    names = F.filter(
        F.regexp_extract_all(line, F.lit(NAME), F.lit(0)), lambda name: ~name.isin(*KEYWORDS)
    )
    imported = F.regexp_extract(line, IMPORT, 1)
    found = F.concat(
        F.array(_word(LINES, F.lit(""))),
        F.when(imported != "", F.array(_word(IMPORTS, imported))).otherwise(F.array()),
        F.transform(names, lambda name: _word(NAMES, name)),
    )
    return (
        lines.select(F.explode(found).alias("word"))
        .groupBy("word.kind", "word.text")
        .agg(F.count("*").alias("count"))
    )


def _word(kind: str, text: Any) -> Any:
    return F.struct(F.lit(kind).alias("kind"), text.alias("text"))

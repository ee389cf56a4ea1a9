"""A driver that copies a topic into two, exactly once, while Spark runs slow tasks twice.

`python -m tests.integration.spark.speculating_sink MASTER SERVERS TOPIC FOLDER`: rows go to
`TOPIC-0` and `TOPIC-1`, as their column says. In the first micro-batch the first attempt of the
first task passes some rows on and then dawdles, until Spark has run another and kills it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

COUNT = 2400
PER_BATCH = COUNT // 2
"""What is below that is in the first batch."""
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
}
_DAWDLES_AT = PER_BATCH // 4
"""In the middle of the first of four tasks, which has the older half of one of two partitions."""
_DAWDLES_S = 100.0


def dawdle(value: bytes) -> bytes:
    """Pass a value on, padded so that Spark does not wait for all rows before it passes some on."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == context.attemptNumber() == 0 and (
        _DAWDLES_AT <= int(value) < PER_BATCH
    ):
        time.sleep(_DAWDLES_S)
    return value + bytes(b" " * 4000)


def main(master: str, servers: str, topic: str, folder: Path) -> None:
    spark = SparkSession.builder.master(master).getOrCreate()
    rows = (
        spark.readStream.format("quire")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic).option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(PER_BATCH)).option("minPartitions", "4").load()
        .withColumn("topic", F.concat(F.lit(f"{topic}-"), F.col("partition").cast("string")))
        .select("key", "topic", F.udf(dawdle, "binary", useArrow=False)("value").alias("value"))
    )  # fmt: skip
    query = (
        rows.writeStream.format("quire")
        .option("kafka.bootstrap.servers", servers).option("kafka.linger.ms", "0")
        .option("deliveryGuarantee", "exactly-once").option("sinkId", topic)
        .option("progressTopic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    for progress in query.recentProgress:
        print("batch", progress["batchId"], progress["numInputRows"])
    spark.stop()


if __name__ == "__main__":
    # Spark pickles by reference what can be imported: use the module's functions, not __main__'s.
    from tests.integration.spark import speculating_sink

    speculating_sink.main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))

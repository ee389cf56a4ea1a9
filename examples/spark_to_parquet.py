"""A topic into a Parquet table, exactly once per record.

Spark's file sink and its checkpoint make each microbatch visible as a whole, so a query that is
killed and started again leaves neither holes nor doubles. Run it again after publishing more: it
goes on where it was.

    python examples/spark_to_parquet.py
"""

# %% Where to read and to write
import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

BOOTSTRAP_SERVERS = os.environ.get("QUIRE_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("QUIRE_TOPIC", "standard-library")
FOLDER = os.environ.get("QUIRE_FOLDER") or tempfile.mkdtemp(prefix="quire-example-")

# %%
# Spark looks for the format `quire` in Pythons that it starts itself: they must be this one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2]")
    .appName("to Parquet")
    .config("spark.python.unix.domain.socket.enabled", "true")
    # Spark's default for timestamps is INT96, which Parquet has deprecated: other readers take it
    # for nanoseconds, in which no time after 2262 exists, or refuse it.
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    .getOrCreate()
)

# %% The topic as a stream. At most 256 MB per batch keeps a long backlog from becoming one
# enormous batch.
records = (
    spark.readStream.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .option("maxBytesPerTrigger", "256m")
    .load()
)

# %% Where a record came from stays with it: (partition, offset) names it for ever
table = records.select(
    F.col("key").cast("string").alias("file"),
    F.col("value").cast("string").alias("line"),
    F.to_date("timestamp").alias("day"),
    "partition",
    "offset",
    "timestamp",
    "headers",
)

# %%
query = (
    table.writeStream.format("parquet")
    .partitionBy("day")
    .option("path", f"{FOLDER}/table")
    .option("checkpointLocation", f"{FOLDER}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% The table, read by whatever reads Parquet
written = spark.read.parquet(f"{FOLDER}/table")
written.groupBy("day").agg(F.count("*").alias("records"), F.max("offset")).show()

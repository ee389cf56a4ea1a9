"""A topic as a stream, and a running aggregation with a watermark.

Run `quire up`, publish something to the topic (`quire demo` shows how: its topic holds the lines
of Python's standard library, keyed by file), then this file, cell by cell or as a whole:

    python examples/spark_running_counts.py

Needs `pip install pyspark pyarrow numpy` and Java 17.
"""

# %% Where to read, and whether to stop at what is there or to go on
import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

BOOTSTRAP_SERVERS = os.environ.get("QUIRE_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("QUIRE_TOPIC", "standard-library")
CHECKPOINT = os.environ.get("QUIRE_CHECKPOINT") or tempfile.mkdtemp(prefix="quire-example-")
TRIGGER = {"availableNow": True}  # or {"processingTime": "5 seconds"}

# %% Spark, with the settings that matter for a Python data source
# Spark looks for the format `quire` in Pythons that it starts itself: they must be this one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2]")
    .appName("running counts")
    .config("spark.python.unix.domain.socket.enabled", "true")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)

# %% The topic as a stream: one row per record
lines = (
    spark.readStream.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .option("columns", "key,value,timestamp")
    .load()
)

# %% Lines and bytes per package and minute. The watermark says how late a record may come: a
# minute that is that old is final, and Spark forgets it.
package = F.split_part(F.col("key").cast("string"), F.lit("/"), F.lit(1))
per_minute = (
    lines.withWatermark("timestamp", "1 minute")
    .groupBy(F.window("timestamp", "1 minute"), package.alias("package"))
    .agg(F.count("*").alias("lines"), F.sum(F.length("value")).alias("bytes"))
)

# %% Keep the counts in a table in memory while the query runs
query = (
    per_minute.writeStream.format("memory")
    .queryName("running_counts")
    .outputMode("complete")
    .option("checkpointLocation", CHECKPOINT)
    .trigger(**TRIGGER)
    .start()
)
query.awaitTermination()

# %% What there is most of
spark.table("running_counts").orderBy(F.desc("lines"), "package").show(10, truncate=False)

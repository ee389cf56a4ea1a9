"""From one topic into another with Spark, each record exactly once.

Spark's checkpoint knows which records a microbatch is made of; the sink sees to it that the
microbatch becomes visible as a whole, and once, however often Spark runs it. Kill the program,
start it again, publish more and start it again: who reads the copy as committed data sees neither
holes nor doubles.

    python examples/spark_exactly_once.py
"""

# %% Where to read and to write
import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

BOOTSTRAP_SERVERS = os.environ.get("QUIRE_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("QUIRE_TOPIC", "standard-library")
COPY = os.environ.get("QUIRE_COPY", f"{TOPIC}-shouted")
CHECKPOINT = os.environ.get("QUIRE_CHECKPOINT") or tempfile.mkdtemp(prefix="quire-example-")

# %%
# Spark looks for the format `quire` in Pythons that it starts itself: they must be this one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2,4]")  # a task that fails is run again, up to four times
    .appName("exactly once")
    .config("spark.python.unix.domain.socket.enabled", "true")
    .getOrCreate()
)

# %% What to copy, and how it is changed on the way
records = (
    spark.readStream.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .option("maxBytesPerTrigger", "64m")
    .load()
    .select("key", F.upper(F.col("value").cast("string")).alias("value"))
)

# %% `sinkId` names this sink for the brokers: keep it, like the checkpoint, from start to start
query = (
    records.writeStream.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("topic", COPY)
    .option("deliveryGuarantee", "exactly-once")
    .option("sinkId", f"{COPY}-job")
    .option("checkpointLocation", CHECKPOINT)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% What readers of committed data see
copied = (
    spark.read.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", COPY)
    .load()
)
print(f"{copied.count()} records in {COPY}")

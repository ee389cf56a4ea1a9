"""A backfill that does not load the brokers: the ledgers of a topic, straight from the bookies.

A consumer reads a partition from its leader, one after the other. In ledger mode Spark cuts the
partition's ledgers into ranges of entries and reads them all at once, each range from the bookies
that hold it: a topic with one partition keeps every core of the cluster busy, and the brokers only
say where the log begins and ends.

    python examples/spark_backfill_from_ledgers.py

The executors need a network path to the bookies, the driver one to ZooKeeper.
"""

# %% Where the brokers are, and where ZooKeeper is
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

BOOTSTRAP_SERVERS = os.environ.get("QUIRE_BOOTSTRAP", "localhost:9092")
ZOOKEEPER = os.environ.get("QUIRE_ZOOKEEPER", "localhost:2181")
TOPIC = os.environ.get("QUIRE_TOPIC", "standard-library")

# %%
# Spark looks for the format `quire` in Pythons that it starts itself: they must be this one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2]")
    .appName("backfill")
    .config("spark.python.unix.domain.socket.enabled", "true")
    .getOrCreate()
)

# %% Everything there is, as of now. `columns` moves only what is needed; `minPartitions` asks for
# at least this many tasks, whatever number of partitions the topic has.
everything = (
    spark.read.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("metadataServiceUri", ZOOKEEPER)
    .option("readMode", "ledger")
    .option("subscribe", TOPIC)
    .option("columns", "key,value,partition,offset")
    .option("minPartitions", "8")
    .load()
)
print("tasks:", everything.rdd.getNumPartitions())

# %% The longest files, and how many lines they have
longest = (
    everything.groupBy(F.col("key").cast("string").alias("file"))
    .agg(F.count("*").alias("lines"), F.sum(F.length("value")).alias("bytes"))
    .orderBy(F.desc("bytes"), "file")
)
longest.show(10, truncate=False)

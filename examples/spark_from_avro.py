"""Avro records of any client's serializers as columns, with their schemas from `quire schemas`.

A serialized value begins with a zero byte and the id of the schema that it was written with, four
bytes; Avro follows. Spark's `from_avro` reads each with its own schema as if it had been written
with the newest one. Needs `quire up`, `quire schemas`, and

    pip install 'confluent-kafka[avro,schemaregistry]'
    python examples/spark_from_avro.py
"""

# %% Where the brokers and the registry are
import json
import os
import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

BOOTSTRAP_SERVERS = os.environ.get("QUIRE_BOOTSTRAP", "localhost:9092")
SCHEMAS = os.environ.get("QUIRE_SCHEMAS", "http://localhost:8081")
TOPIC = os.environ.get("QUIRE_TOPIC", "users")
AVRO_JAR = os.environ.get("QUIRE_SPARK_AVRO", "")

# %% Two generations of a schema, as two versions of an application write them
first = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
email = {"name": "email", "type": "string", "default": "unknown"}
second = {**first, "fields": [*first["fields"], email]}

registry = SchemaRegistryClient({"url": SCHEMAS})
producer = Producer({"bootstrap.servers": BOOTSTRAP_SERVERS})
where = SerializationContext(TOPIC, MessageField.VALUE)
for schema, users in (
    (first, [{"name": "anna", "age": 41}, {"name": "ben", "age": 7}]),
    (second, [{"name": "carla", "age": 29, "email": "carla@example.org"}]),
):
    serialize = AvroSerializer(registry, json.dumps(schema))
    for user in users:
        producer.produce(TOPIC, serialize(user, where))
assert producer.flush(30) == 0

# %%
# Spark looks for the format `quire` in Pythons that it starts itself: they must be this one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.master("local[2]").appName("from Avro")
if AVRO_JAR:
    builder = builder.config("spark.jars", AVRO_JAR)
else:
    builder = builder.config("spark.jars.packages", "org.apache.spark:spark-avro_2.13:4.1.1")
spark = (
    builder.config("spark.python.unix.domain.socket.enabled", "true")
    .config("spark.sql.shuffle.partitions", 2)  # a handful of records
    .getOrCreate()
)

records = (
    spark.read.format("quire")
    .option("kafka.bootstrap.servers", BOOTSTRAP_SERVERS)
    .option("subscribe", TOPIC)
    .load()
    .withColumn("schema_id", F.conv(F.hex(F.substring("value", 2, 4)), 16, 10).cast("int"))
    .withColumn("body", F.expr("substring(value, 6)"))
    .cache()
)


# %% The schema that each was written with, and the one to read all of them with
newest = registry.get_latest_version(f"{TOPIC}-value").schema.schema_str


def written_with(schema_id: int) -> DataFrame:
    written = registry.get_schema(schema_id).schema_str
    user = from_avro("body", written, {"avroSchema": newest})
    return records.where(F.col("schema_id") == schema_id).select(user.alias("user"))


ids = sorted(row["schema_id"] for row in records.select("schema_id").distinct().collect())
users = written_with(ids[0])
for schema_id in ids[1:]:
    users = users.union(written_with(schema_id))
users = users.select("user.*").orderBy("name")

# %%
users.show()

"""The columns of a topic, as Spark and as Arrow see them: those of Spark's own Kafka source.

Spark checks that the first batch of each task has exactly the schema that it computes itself from
ours, nullability and field names of lists included; so the Arrow schema here is Spark's own
computation.

    key binary | value binary | topic string | partition int | offset long
    | timestamp timestamp (microseconds, UTC) | timestampType int
    [| headers array<struct<key string, value binary>>]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from client.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS: Final = "headers"

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}

COLUMNS: Final = tuple(_TYPES)
"""Every column a reader can give, in the order of Spark's Kafka source."""

PLAIN_COLUMNS: Final = tuple(name for name in COLUMNS if name != HEADERS)
"""What a reader gives unless it is asked for something else."""


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return Spark's schema of the columns, in that order; every field may be null."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema that batches must have for Spark to take them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(columns), timezone="UTC")


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a user's `.schema(...)` asks for.

    Raises ConfigError for a column that topics do not have, or of another type.
    """
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ConfigError(
                f"there is no column {field.name!r}: a topic has {', '.join(COLUMNS)}"
            )
        wanted = _TYPES[field.name]
        if field.dataType != wanted:
            raise ConfigError(
                f"column {field.name} is of type {wanted.simpleString()}, not"
                f" {field.dataType.simpleString()}: cast it after load()"
            )
    return tuple(field.name for field in schema.fields)

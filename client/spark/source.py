"""The data source `quire`: from Spark's options to its readers and writers.

Spark creates it in a process of its own for each `load()` or `save()`, and once more for every
lookup. So nothing here connects to anything, and Arrow is imported only by readers and writers.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from client.spark.options import Options, parse_columns, parse_options
from client.spark.schema import columns_of, spark_schema


class QuireSource(DataSource):
    """`spark.read.format("quire")`: topics, with the options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return what follows `format`."""
        return "quire"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return spark_schema(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from client.spark.read.batch_reader import QuireBatchReader

        return QuireBatchReader(self._parsed(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from client.spark.read.stream_reader import QuireStreamReader

        return QuireStreamReader(self._parsed(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from client.spark.write.writer import make_writer

        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from client.spark.write.stream_writer import make_stream_writer

        return make_stream_writer(self.options, schema)

    def _parsed(self, schema: StructType, *, streaming: bool) -> Options:
        """Return the options with the columns of a schema that the user may have given."""
        options = parse_options(self.options, streaming=streaming)
        return replace(options, columns=columns_of(schema))

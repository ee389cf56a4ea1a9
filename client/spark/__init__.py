"""Topics as DataFrames: the data source `quire` for PySpark, batch and streaming.

Spark finds it through the top-level module `pyspark_quire`. Applications need only
`client.spark.listener`, and only for lag and group offsets.
"""

"""What Spark finds by itself: every top-level module `pyspark_*` with a `DefaultSource`.

Spark imports this at the first lookup of any format it does not have built in, in every
application that has Quire installed. So it imports next to nothing: Arrow and the rest come with
the first reader or writer.
"""

from client.spark.source import QuireSource as DefaultSource

__all__ = ["DefaultSource"]

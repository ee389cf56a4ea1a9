"""Writing: Spark's hooks for batches and streams, and what their tasks do."""

"""Schedules of a compacted partition: a writer, leaders, cleaners and readers."""

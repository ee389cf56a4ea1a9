"""Ledgers and their metadata for Spark's synchronous code, to be read and never changed."""

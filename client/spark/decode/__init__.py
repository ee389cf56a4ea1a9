"""Decoding: record batches to Arrow columns, many batches at a time."""

"""Fuzzers for every parser of bytes that somebody else wrote: `make fuzz`."""

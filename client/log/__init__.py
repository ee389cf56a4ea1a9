"""What brokers and readers of ledgers both know of a partition's log, without I/O.

The log of a partition is a list of segments (`segments.py`), one ledger each. A ledger's entries
hold record batches or are internal (`entry_format.py`); the internal ones are snapshots
(`snapshot.py`), and any entry can be found by offset (`offset_search.py`).
"""

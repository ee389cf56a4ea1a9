"""The deterministic simulator: real Quire code on a simulated loop, network, disk and store.

Read `loop.py` first, then `net.py`, `disk.py`, `store.py`; `ledger_world.py` puts a cluster
together, `oracle.py` judges it, `__main__.py` runs schedules by seed.
"""

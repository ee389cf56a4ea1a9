"""The deterministic simulator: real Quire code on a simulated loop, network, disk and store.

Read `machine/loop.py` first, then `net.py`, `disk.py` and `store.py` beside it. `ledgers/world.py`
puts a cluster together, `ledgers/oracle.py` judges it, `__main__.py` runs schedules by seed.
"""

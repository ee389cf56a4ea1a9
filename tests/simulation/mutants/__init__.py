"""Planted defects, each of which a judge must find; `table.py` lists them all."""

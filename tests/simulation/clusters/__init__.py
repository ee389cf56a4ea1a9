"""Schedules of whole clusters: brokers, bookies, auto recovery, and their judges."""

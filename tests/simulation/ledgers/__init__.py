"""Schedules of ledgers alone: writers, recoverers, readers, and their judge."""

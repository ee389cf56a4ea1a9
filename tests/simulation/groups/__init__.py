"""Schedules of groups of the consumer protocol alone (KIP-848)."""

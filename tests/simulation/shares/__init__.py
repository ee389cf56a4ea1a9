"""Schedules of share groups alone (KIP-932)."""

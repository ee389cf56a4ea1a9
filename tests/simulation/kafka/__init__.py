"""Kafka clients as simulated clusters have them, over plain requests."""

"""Schedules of transactions alone: clients, coordinators and leaders, and their judge."""

"""Tests of `client.segments`."""

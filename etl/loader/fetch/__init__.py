"""Fetch row groups and decode their pages into tokens."""

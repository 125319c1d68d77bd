"""Check the integrity of a lake."""

"""The Delta protocol: open, list and commit a table. Knows nothing of a lake."""

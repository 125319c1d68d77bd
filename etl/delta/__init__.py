"""The Delta protocol: open, list and commit a table. It could be published alone."""

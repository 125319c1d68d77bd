"""Find duplicates across the whole lake, one pass for each deduplication stage."""

"""Report which documents deduplication removed, and for which."""

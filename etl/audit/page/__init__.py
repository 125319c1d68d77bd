"""The page of a lake: one HTML file to look at, from the logs, statistics and sampled rows."""

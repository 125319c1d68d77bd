"""Audit a lake: history, lineage, traces, reports, threshold tuning and verification. No Dask."""

"""Maintain a lake: vacuum, repair and optimize its tables. No Dask."""

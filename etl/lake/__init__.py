"""A lake: its tables, its small files, and the ledger of work done. No Dask."""

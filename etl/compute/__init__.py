"""How work reaches Dask: clusters, submission, shuffles."""

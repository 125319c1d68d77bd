"""Dask clusters on Kubernetes, through Dask's operator: `--cluster k8s:FILE`."""

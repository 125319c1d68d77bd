"""The fsspec filesystem and the delta-rs options of a URL, configured from the environment."""

import os
from collections.abc import Mapping
from typing import Any

import fsspec

from etl.errors import StorageError
from etl.storage.urls import get_protocol

CREATE_ONLY_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    **{protocol: {"mode": "create"} for protocol in ("s3", "s3a", "gs", "gcs")},
    **{protocol: {"overwrite": False} for protocol in ("az", "abfs", "abfss")},
}
"""Protocol -> the options with which the store's client creates an object, but never overwrites one."""


def filesystem(url: str, *, retry: bool = True) -> fsspec.AbstractFileSystem:
    """Return the fsspec filesystem of a URL, with the endpoint and region from the environment.

    The store's client repeats failed requests unless ``retry`` is false. Raises StorageError if no library
    for the protocol is installed.
    """
    protocol = get_protocol(url)
    options: dict[str, Any] = {}
    if protocol in ("s3", "s3a"):
        client = {"region_name": region} if (region := os.environ.get("AWS_REGION")) else {}
        options = {"endpoint_url": os.environ.get("AWS_ENDPOINT_URL"), "client_kwargs": client}
        if not retry:
            options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    # A cached listing may be out of date, and the cache is not thread-safe.
    if protocol in CREATE_ONLY_OPTIONS:
        options["use_listings_cache"] = False
    try:
        fs = fsspec.filesystem(protocol, **options)
    except (ImportError, ValueError) as error:
        raise StorageError(
            f"no filesystem for {protocol}:// ({error})",
            where=url,
            hint="local paths and s3:// work as installed; gs:// needs gcsfs, az:// needs adlfs",
        ) from error
    if not retry and hasattr(fs, "retries"):
        fs.retries = 1  # its options differ, so fsspec does not share this instance with others
    return fs


def delta_options(url: str) -> dict[str, str]:
    """Return the storage options of delta-rs, which reads credentials from the environment itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if url.startswith(("s3://", "s3a://")) and endpoint.startswith("http://"):
        return {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": endpoint}
    return {}

"""The fsspec filesystem and the delta-rs options of a URL, configured from the environment.

- S3: ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and what botocore reads, such as ``AWS_ACCESS_KEY_ID``.
- Google: what gcsfs reads, such as ``GOOGLE_APPLICATION_CREDENTIALS`` or ``STORAGE_EMULATOR_HOST``.
- Azure: ``AZURE_STORAGE_CONNECTION_STRING``, or ``AZURE_STORAGE_ACCOUNT_NAME`` with what adlfs reads, such as
  ``AZURE_STORAGE_ACCOUNT_KEY``. A URL such as ``abfss://container@account.dfs.core.windows.net/lake`` names
  the account itself.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import fsspec
from fsspec.utils import glob_translate

from etl.errors import StorageError, error_line
from etl.storage.range_checks import watch_http, watch_s3
from etl.storage.s3_request_counts import counting_session
from etl.storage.urls import get_protocol, is_local, local_path, split_authority

_AZURE_PROTOCOLS: Final = ("az", "abfs", "abfss")

CREATE_ONLY_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    **{protocol: {"mode": "create"} for protocol in ("s3", "s3a", "gs", "gcs")},
    **{protocol: {"overwrite": False} for protocol in _AZURE_PROTOCOLS},
}
"""Protocol -> the options with which the store's client creates an object, but never overwrites one."""

TIMEOUT_VARIABLE: Final = "TOKENLAKE_STORE_TIMEOUT"
"""The environment variable with the seconds that an operation on a store may take."""

_DEFAULT_TIMEOUT_S = 60.0
_AZURE_OPTIONS = {
    "AccountName": "azure_storage_account_name",
    "AccountKey": "azure_storage_account_key",
    "SharedAccessSignature": "azure_storage_sas_key",
    "BlobEndpoint": "azure_storage_endpoint",
}
"""Field of a connection string -> option of delta-rs."""

_S3 = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE); for a store other than AWS also "
    "AWS_ENDPOINT_URL, and AWS_REGION if it needs one"
)
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"
_AZURE = (
    "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
)
_VARIABLES: Final = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GOOGLE),
    **dict.fromkeys(_AZURE_PROTOCOLS, _AZURE),
}
"""Protocol -> the environment variables with credentials."""

_SESSION_OPTIONS: Final = {
    **dict.fromkeys(("http", "https"), "client_kwargs"),
    **dict.fromkeys(("gs", "gcs"), "session_kwargs"),
}
"""Protocol -> the option of its client for the sessions of aiohttp."""

_NOT_STORES: Final = ("ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs", "generic")
"""Protocols of fsspec that the environment cannot configure, or that are another protocol's."""

_DELTA_REQUEST_S = 30.0  # the default of delta-rs for one request


def filesystem(url: str, *, retry: bool = True) -> fsspec.AbstractFileSystem:
    """Return the fsspec filesystem of a URL, with the endpoint and region from the environment.

    The store's client repeats failed requests unless ``retry`` is false. Raises StorageError if no library
    for the protocol is installed, or if the environment is for another account than the URL.
    """
    protocol = get_protocol(url)
    hint = "local paths and s3:// work; for gs:// pip install 'tokenlake[gs]', for az:// 'tokenlake[az]'"
    if protocol in _NOT_STORES:
        raise StorageError(f"no filesystem for {protocol}://", where=url, hint=hint)
    try:
        fs = fsspec.filesystem(protocol, **_client_options(url, retry=retry))
    except Exception as error:  # of any type: fsspec knows protocols that need options
        what = f"no filesystem for {protocol}:// ({error_line(error)})"
        raise StorageError(what, where=url, hint=hint) from error
    if protocol in ("s3", "s3a") and fs.session is None:  # it has sent no request yet
        fs.session = counting_session()
        watch_s3(fs.session)
    if fs.async_impl:
        _keep_after_fork(fs)
    if not retry and hasattr(fs, "retries"):
        fs.retries = 1  # its options differ, so fsspec does not share this instance with others
    return fs


def _client_options(url: str, *, retry: bool) -> dict[str, Any]:
    protocol = get_protocol(url)
    options: dict[str, Any] = {}
    if protocol in ("s3", "s3a"):
        client = {"region_name": region} if (region := os.environ.get("AWS_REGION")) else {}
        options = {"endpoint_url": os.environ.get("AWS_ENDPOINT_URL"), "client_kwargs": client}
        if not retry:
            options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    if protocol in _AZURE_PROTOCOLS:
        options = _azure_account(url)
    if protocol in _SESSION_OPTIONS:
        options[_SESSION_OPTIONS[protocol]] = {"trace_configs": [watch_http()]}
    # A cached listing may be out of date, and the cache is not thread-safe.
    if protocol in CREATE_ONLY_OPTIONS:
        options["use_listings_cache"] = False
    return options


@cache
def _keep_after_fork(_: fsspec.AbstractFileSystem) -> None:
    """Keep a filesystem in all processes that are forked from this one.

    There, fsspec drops the filesystems of the parent, and they would close its connections with an event loop
    that does not run: 92 lines of tracebacks for a DataLoader with two workers.
    """


def glob_pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of the paths that a glob of fsspec matches."""
    return re.compile(glob_translate(path))


def delta_options(url: str) -> dict[str, str]:
    """Return the storage options of delta-rs, which reads most credentials from the environment itself.

    It does not know http endpoints, the emulator of Google, connection strings of Azure, or our timeout.
    """
    protocol = get_protocol(url)
    if is_local(url):
        return {}
    timeout = store_timeout()
    options = {
        "timeout": f"{min(timeout, _DELTA_REQUEST_S) * 1000:.0f}ms",
        "retry_timeout": f"{timeout * 1000:.0f}ms",
    }
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if protocol in ("s3", "s3a") and endpoint.startswith("http://"):
        options |= {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": endpoint}
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if protocol in ("gs", "gcs") and emulator:
        base = emulator if "://" in emulator else f"http://{emulator}"
        key = {"gcs_base_url": base, "disable_oauth": True, "client_email": "", "private_key": ""}
        options["google_service_account_key"] = json.dumps({**key, "private_key_id": ""})
    if protocol in _AZURE_PROTOCOLS:
        fields = _connection_string()
        options |= {name: fields[key] for key, name in _AZURE_OPTIONS.items() if key in fields}
        if fields.get("BlobEndpoint", "").startswith("http://"):
            options["azure_allow_http"] = "true"
    return options


def access_hint(url: str) -> str:
    """Return what to check if a URL cannot be reached, such as the variables with credentials."""
    if is_local(url):
        return "check the path and its permissions"
    variables = _VARIABLES.get(get_protocol(url))
    return "check the URL" if variables is None else f"check the URL, and set {variables}"


def store_timeout() -> float:
    """Return the seconds that an operation on a store may take; StorageError if the setting is invalid."""
    text = os.environ.get(TIMEOUT_VARIABLE)
    if not text:
        return _DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StorageError(
            f"{TIMEOUT_VARIABLE} must be a positive number of seconds, not {text!r}",
            hint=f"unset it for the default of {_DEFAULT_TIMEOUT_S:.0f}",
        )
    return seconds


def endpoint_of(url: str) -> str:
    """Return the endpoint of a URL's store if the environment names one, else the bucket.

    >>> endpoint_of("gs://bucket/lake/tokens")
    'gs://bucket'
    """
    protocol = get_protocol(url)
    endpoint = None
    if protocol in ("s3", "s3a"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
    elif protocol in ("gs", "gcs"):
        endpoint = os.environ.get("STORAGE_EMULATOR_HOST")
    elif protocol in _AZURE_PROTOCOLS:
        endpoint = _connection_string().get("BlobEndpoint")
    return endpoint or split_authority(url)[0]


def location_of(url: str) -> str:
    """Return one URL for all URLs of a file or folder: without links, and with one name of its protocol.

    >>> location_of("s3a://raw/web"), location_of("gcs://raw")
    ('s3://raw/web', 'gs://raw')
    """
    if is_local(url):
        return f"file://{os.path.realpath(local_path(url))}"
    protocol = get_protocol(url)
    if protocol not in _AZURE_PROTOCOLS:
        return {"s3a": "s3", "gcs": "gs"}.get(protocol, protocol) + url[len(protocol) :]
    authority, path = split_authority(url)
    container, _, host = authority.partition("://")[2].partition("@")
    variable = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    account = variable or _connection_string().get("AccountName")
    other = f"@{host}" if host and host.partition(".")[0] != account else ""
    return f"abfss://{container}{other}/{path}".rstrip("/")


def _azure_account(url: str) -> dict[str, Any]:
    """Return the options for the account that a URL names, if any."""
    host = split_authority(url)[0].partition("@")[2]
    if not host:
        return {}
    account = host.partition(".")[0]
    configured = _connection_string().get("AccountName", account)
    if configured != account:
        raise StorageError(
            f"AZURE_STORAGE_CONNECTION_STRING is for the account {configured!r}, not {account!r}",
            where=url,
            hint="set AZURE_STORAGE_ACCOUNT_KEY instead, or the connection string of this account",
        )
    return {"account_name": account, "account_host": host.replace(".dfs.", ".blob.")}


def _connection_string() -> dict[str, str]:
    """Return the fields of Azure's connection string; values such as keys may contain =."""
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {name: value for name, _, value in pairs}

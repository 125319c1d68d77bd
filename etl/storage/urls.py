"""URLs of files and folders: normalize them, join them, and refuse credentials in them.

A local path is a URL too: ``normalize`` writes it as ``file://``.
"""

import os
import re
from pathlib import Path

from etl.errors import StorageError

WILDCARDS = "*?["

_USER = re.compile(r"(?<=://)[^/@]*@")
_SIGNED = re.compile(  # signed URLs of S3, Google and Azure, and keys passed as query parameters
    r"[?&;](?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|sig|signature"
    r"|awsaccesskeyid|[a-z_]*(?:secret|token|password|key))=.*",
    re.IGNORECASE | re.DOTALL,
)


def normalize(url: str | os.PathLike[str]) -> str:
    """Return the canonical URL: absolute, with ``file://`` for local paths, without a slash at the end.

    >>> normalize("s3://lake/web/")
    's3://lake/web'

    Raises StorageError if it contains a user name, a key or a signature.
    """
    text = os.fspath(url)
    refuse_credentials(text)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" in text:
        return text.rstrip("/")
    return "file://" + (os.path.abspath(os.path.expanduser(text)).rstrip("/") or "/")


def refuse_credentials(url: str) -> None:
    """Raise StorageError if a URL contains credentials: URLs are written into the lineage.

    >>> refuse_credentials("https://store/a.parquet?sig=c2VjcmV0")
    Traceback (most recent call last):
    etl.errors.StorageError: https://store/a.parquet[...]: a URL must not contain credentials
      hint: set environment variables instead, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    """
    if is_local(url) or not (_USER.search(url) or _SIGNED.search(url)):
        return
    shown = _SIGNED.sub("[...]", _USER.sub("[...]@", url))
    raise StorageError(
        "a URL must not contain credentials",
        where=shown,
        hint="set environment variables instead, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def join(url: str, *parts: str) -> str:
    """Return the URL of a path below another URL.

    >>> join("s3://lake/web", "tokens", "part-0.parquet")
    's3://lake/web/tokens/part-0.parquet'
    """
    return "/".join([url.rstrip("/"), *(part.strip("/") for part in parts)])


def get_protocol(url: str) -> str:
    """Return the protocol of a URL, such as s3; that of a local path is file."""
    return url.split("://", 1)[0] if "://" in url else "file"


def is_local(url: str) -> bool:
    """Return whether the URL is a path on this machine."""
    return get_protocol(url) == "file"


def local_path(url: str) -> Path:
    """Return the path of a local URL."""
    return Path(url.removeprefix("file://"))


def is_glob(url: str) -> bool:
    """Return whether the URL has wildcards; ``find_files`` prefers a file of exactly that name."""
    return any(char in url for char in WILDCARDS)

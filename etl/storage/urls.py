"""URLs of files and folders: normalize them, join them, and refuse credentials in them.

A local path is a URL too: ``normalize`` writes it as ``file://``.
"""

import os
import re
from pathlib import Path

from etl.errors import StorageError

WILDCARDS = "*?["

_LOCAL = re.compile(r"^(?:file|local)://")  # two names of one protocol in fsspec
_USER = re.compile(r"(?<=://)[^/@]*@")
_PASSWORD = re.compile(r"(?<=://)[^/@]*:[^/@]*@")  # in abfss://container@account it is a container
_SIGNED = re.compile(  # signed URLs of S3, Google and Azure, and keys passed as query parameters
    r"[?&;](?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|sig|signature"
    r"|awsaccesskeyid|[a-z_]*(?:secret|token|password|key))=.*",
    re.IGNORECASE | re.DOTALL,
)

_AZURE = ("az", "abfs", "abfss")
_OTHER_OBJECT = {
    **dict.fromkeys(("s3", "s3a"), re.compile(r"\?versionId=")),
    **dict.fromkeys(_AZURE, re.compile(r"\?versionid=|\?[^#]*#|[?#]$|[\\\t\r\n]")),
}
"""Protocol -> characters for which the store's client would use another object: it parses them."""


def normalize(url: str | os.PathLike[str]) -> str:
    """Return the canonical URL: absolute, with ``file://`` for local paths, without a slash at the end.

    >>> normalize("s3://lake/web/")
    's3://lake/web'

    Raises StorageError if it contains a user name, a key or a signature, or if the store's client cannot
    address it.
    """
    text = os.fspath(url)
    refuse_credentials(text)
    refuse_unaddressable(text)
    text = _LOCAL.sub("", text)
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
    user = _PASSWORD if get_protocol(url) in _AZURE else _USER
    if is_local(url) or not (user.search(url) or _SIGNED.search(url)):
        return
    shown = _SIGNED.sub("[...]", user.sub("[...]@", url))
    raise StorageError(
        "a URL must not contain credentials",
        where=shown,
        hint="set environment variables instead, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def refuse_unaddressable(url: str) -> None:
    """Raise StorageError if the client of the store would read or write another object.

    >>> refuse_unaddressable("s3://bucket/a?versionId=7")
    Traceback (most recent call last):
    etl.errors.StorageError: s3://bucket/a?versionId=7: the client of s3:// cannot address '?versionId='
      hint: use another name
    """
    protocol = get_protocol(url)
    pattern = _OTHER_OBJECT.get(protocol)
    if pattern is not None and (match := pattern.search(url.rstrip("/"))):
        what = f"the client of {protocol}:// cannot address {match[0]!r}"
        raise StorageError(what, where=url, hint="use another name")


def join(url: str, *parts: str) -> str:
    """Return the URL of a path below another URL.

    >>> join("s3://lake/web", "tokens", "part-0.parquet")
    's3://lake/web/tokens/part-0.parquet'
    """
    return "/".join([url.rstrip("/"), *(part.strip("/") for part in parts)])


def get_protocol(url: str) -> str:
    """Return the protocol of a URL, such as s3; it is file for a local path."""
    return url.split("://", 1)[0] if "://" in url else "file"


def split_authority(url: str) -> tuple[str, str]:
    """Split a URL after its bucket, or its container and account, if it has any.

    >>> split_authority("abfss://raw@account.dfs.core.windows.net/lake/web")
    ('abfss://raw@account.dfs.core.windows.net', 'lake/web')
    """
    protocol, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    return f"{protocol}://{authority}", path


def is_local(url: str) -> bool:
    """Return whether the URL is a path on this machine."""
    return get_protocol(url) == "file"


def local_path(url: str) -> Path:
    """Return the path of a local URL."""
    return Path(url.removeprefix("file://"))


def is_glob(url: str) -> bool:
    """Return whether the URL has wildcards; ``find_files`` prefers a file of exactly that name."""
    return any(char in url for char in WILDCARDS)

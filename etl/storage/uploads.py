"""Multipart uploads that their writers never completed: list and abort those below a prefix.

S3 keeps, and charges for, the parts of an upload until it is completed or aborted. Other stores need nothing:
they drop such parts themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from etl.errors import StorageError, error_line
from etl.storage.filesystem import filesystem
from etl.storage.urls import get_protocol, normalize

_PAGE = 1000  # the most that S3 returns at once


@dataclass(frozen=True, kw_only=True)
class Upload:
    """An unfinished upload: the URI of the file, the id of the upload, and its start."""

    uri: str
    key: str
    started: datetime  # UTC, by the store's clock


def unfinished_uploads(folder: str, *, before: datetime) -> list[Upload]:
    """Return the uploads below a folder that were started before a time, sorted by URI.

    The list is empty for stores other than S3. Raises StorageError if the uploads cannot be listed.
    """
    url = normalize(folder)
    if get_protocol(url) not in ("s3", "s3a"):
        return []
    try:
        uploads = [
            Upload(
                uri=f"{get_protocol(url)}://{page['Bucket']}/{upload['Key']}",
                key=upload["UploadId"],
                started=upload["Initiated"].astimezone(UTC),
            )
            for page in _pages(url)
            for upload in page.get("Uploads") or ()
        ]
    except Exception as error:
        raise StorageError(
            f"the unfinished uploads cannot be listed ({error_line(error)})",
            where=url,
            hint="allow the action s3:ListBucketMultipartUploads",
        ) from error
    old = (upload for upload in uploads if upload.started < before)
    return sorted(old, key=lambda upload: (upload.uri, upload.key))


def abort_upload(upload: Upload) -> None:
    """Abort an upload, which removes its parts; raise StorageError if that fails."""
    fs = filesystem(upload.uri)
    bucket, path, _ = fs.split_path(upload.uri)
    try:
        fs.call_s3("abort_multipart_upload", Bucket=bucket, Key=path, UploadId=upload.key)
    except FileNotFoundError:
        pass  # completed or aborted since the listing
    except Exception as error:
        raise StorageError(
            f"an unfinished upload cannot be aborted ({error_line(error)})",
            where=upload.uri,
            hint="allow the action s3:AbortMultipartUpload",
        ) from error


def _pages(url: str) -> Iterator[dict[str, Any]]:
    fs = filesystem(url)
    bucket, path, _ = fs.split_path(f"{url}/x")
    wanted = {"Bucket": bucket, "Prefix": path.removesuffix("x"), "MaxUploads": _PAGE}
    marker: dict[str, Any] = {}
    while True:
        page = fs.call_s3("list_multipart_uploads", **wanted, **marker)
        yield {**page, "Bucket": bucket}
        if not page.get("IsTruncated"):
            return
        names = ("KeyMarker", "UploadIdMarker")
        marker = {name: page[f"Next{name}"] for name in names if page.get(f"Next{name}")}

"""Unfinished multipart uploads below a folder are found, page by page, and aborted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from etl import storage
from etl.storage import uploads

LATER = datetime.now(UTC) + timedelta(days=1)


def begin(folder: str, *names: str) -> list[str]:
    """Begin uploads, as a killed worker does, and return the URIs."""
    fs = storage.filesystem(folder)
    uris = [storage.join(folder, name) for name in names]
    for uri in uris:
        bucket, key, _ = fs.split_path(uri)
        upload = fs.call_s3("create_multipart_upload", Bucket=bucket, Key=key)["UploadId"]
        fs.call_s3(
            "upload_part", Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"part"
        )
    return uris


def test_uploads_below_a_folder_are_found_and_aborted(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_PAGE", 2)
    wanted = begin(f"{s3}/lake", "a", "tokens/b", "tokens/c", "tokens/d", "tokens/d")
    others = begin(s3, "lake2/a", "other")
    found = uploads.unfinished_uploads(f"{s3}/lake", before=LATER)
    assert [upload.uri for upload in found] == wanted
    for upload in [*found, found[0]]:  # aborting twice does no harm
        uploads.abort_upload(upload)
    assert uploads.unfinished_uploads(f"{s3}/lake", before=LATER) == []
    assert [each.uri for each in uploads.unfinished_uploads(s3, before=LATER)] == others


def test_young_uploads_are_left_alone(s3: str) -> None:
    begin(f"{s3}/lake", "a")
    (upload,) = uploads.unfinished_uploads(f"{s3}/lake", before=LATER)
    assert uploads.unfinished_uploads(f"{s3}/lake", before=upload.started) == []


def test_local_folders_have_no_uploads(tmp_path: Path) -> None:
    assert uploads.unfinished_uploads(str(tmp_path), before=LATER) == []

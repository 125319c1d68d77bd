"""Unfinished multipart uploads below a folder are found, page by page, and aborted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from etl.storage import uploads
from tests.helpers.uploads import begin_uploads

LATER = datetime.now(UTC) + timedelta(days=1)


def test_uploads_below_a_folder_are_found_and_aborted(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_PAGE", 2)
    wanted = begin_uploads(f"{s3}/lake", "a", "tokens/b", "tokens/c", "tokens/d", "tokens/d")
    others = begin_uploads(s3, "lake2/a", "other")
    found = uploads.unfinished_uploads(f"{s3}/lake", before=LATER)
    assert [upload.uri for upload in found] == wanted
    for upload in [*found, found[0]]:  # aborting twice does no harm
        uploads.abort_upload(upload)
    assert uploads.unfinished_uploads(f"{s3}/lake", before=LATER) == []
    assert [each.uri for each in uploads.unfinished_uploads(s3, before=LATER)] == others


def test_young_uploads_are_left_alone(s3: str) -> None:
    begin_uploads(f"{s3}/lake", "a")
    (upload,) = uploads.unfinished_uploads(f"{s3}/lake", before=LATER)
    assert uploads.unfinished_uploads(f"{s3}/lake", before=upload.started) == []


def test_local_folders_have_no_uploads(tmp_path: Path) -> None:
    assert uploads.unfinished_uploads(str(tmp_path), before=LATER) == []

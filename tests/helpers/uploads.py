"""Multipart uploads that are never completed."""

from etl import storage


def begin_uploads(folder: str, *names: str) -> list[str]:
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

"""Compare each range of bytes that a store returns with the range that was requested.

A server or a cache in front of it may ignore the header Range, and return the whole file, or return another
range. Its client would pass the bytes on, and rows would be read twice or not at all. The clients of S3, of
Google Cloud Storage and of web servers show the headers of each response to the functions below. Clients of
other stores do not, so that only the number of bytes is compared (``check_length``).
"""

import re
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from etl.errors import StorageError

_REQUEST = re.compile(r"bytes=(\d+)-(\d*)")
_RESPONSE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_HINT: Final = (
    "a proxy or a cache in front of the store may ignore the header Range: connect to the store directly, or "
    "copy the files to local disk"
)


def check_length(url: str, num_bytes: int, expected: int) -> None:
    """Raise StorageError if a range of a file does not have the bytes that were requested."""
    if num_bytes != expected:
        what = f"the store returned {num_bytes:,} bytes instead of {expected:,}"
        hint = _HINT if num_bytes > expected else "the file may have changed: run again"
        raise StorageError(what, where=url, hint=hint)


def check_response(url: str, requested: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise StorageError if a response has other bytes than a request's header Range names.

    Responses with the status of an error are left to the client.
    """
    wanted = _REQUEST.fullmatch(requested)
    if wanted is None or status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        return
    start, stop = int(wanted[1]), int(wanted[2]) + 1 if wanted[2] else None
    length = int(headers.get("Content-Length", -1))
    if status == HTTPStatus.OK:
        if start == 0 and (stop is None or 0 <= length <= stop):
            return  # the range is the whole file
        what = f"the store ignored {requested!r} and returned the whole file"
        raise StorageError(what, where=url, hint=_HINT)
    value = headers.get("Content-Range", "")
    if not _is_range(value, start, stop, length):
        what = f"the store returned {value or 'no Content-Range'!r} for {requested!r}"
        raise StorageError(what, where=url, hint=_HINT)


def _is_range(content_range: str, start: int, stop: int | None, length: int) -> bool:
    """Return whether a Content-Range fits a request, up to the end of the file at most."""
    match = _RESPONSE.fullmatch(content_range)
    if match is None:
        return False
    # For ``bytes=100-199`` of a file of 150 bytes, ``bytes 100-149/150`` is right.
    first, end = int(match[1]), int(match[2]) + 1
    size = end if match[3] == "*" else int(match[3])
    is_complete = end == size if stop is None else end == min(stop, size)
    return first == start and is_complete and length in (-1, end - first)


def watch_s3(session: Any) -> None:
    """Check all responses to a session of the client of S3."""
    session.register("before-call.s3.GetObject", _note_request)
    session.register("after-call.s3.GetObject", _check_object)


@cache
def watch_http() -> Any:
    """Return the settings with which a session of aiohttp checks all its responses."""
    from aiohttp import TraceConfig

    config = TraceConfig()
    config.on_request_end.append(_check_http)
    return config


def _note_request(params: Mapping[str, Any], context: dict[str, Any], **_others: Any) -> None:
    context["tokenlake"] = params["url"], params["headers"].get("Range", "")


def _check_object(parsed: Mapping[str, Any], context: Mapping[str, Any], **_others: Any) -> None:
    url, requested = context["tokenlake"]
    response = parsed["ResponseMetadata"]
    headers = {name.title(): value for name, value in response["HTTPHeaders"].items()}
    check_response(url, requested, response["HTTPStatusCode"], headers)


async def _check_http(_session: Any, _context: Any, request: Any) -> None:
    url, response = str(request.url.with_query(None)), request.response
    check_response(url, request.headers.get("Range", ""), response.status, response.headers)

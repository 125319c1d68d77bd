"""Parse the HTTP response in a WARC record leniently, and undo the codings of its body."""

import re
from typing import Final, NamedTuple

from etl.sources.layers.bodies import decode_body

_MAX_HEADER_BYTES: Final = 1 << 20
_STATUS = re.compile(rb"\s*HTTP/\d+(?:\.\d+)?[ \t]+(\d{1,9})(?!\w)", re.IGNORECASE)
_HEADER_END = re.compile(rb"\n\r*\n")  # many archives have headers with bare line feeds
_CODINGS = re.compile(rb"\n(content|transfer)-encoding[ \t]*:([^\n]*(?:\n[ \t][^\n]*)*)")
_CONTENT_TYPE = re.compile(rb"\ncontent-type[ \t]*:([^\n]*(?:\n[ \t][^\n]*)*)")
_MAX_CODINGS: Final = 5  # as in curl (MAX_ENCODE_STACK): each takes time and memory


class Response(NamedTuple):
    """A response: its status, Content-Type and decoded body, or the error in its header."""

    status: int = 0
    content_type: str = ""  # in lower case
    body: bytes = b""
    damage: tuple[str, ...] = ()  # why the body could not be decoded to its end
    error: str | None = None


def is_response(block: bytes) -> bool:
    """Return whether a block starts with the status line of a response."""
    return _STATUS.match(block) is not None


def parse_response(block: bytes, max_bytes: int) -> Response:
    """Return the response of a block; a body over ``max_bytes`` may not be decoded to its end."""
    status = _STATUS.match(block)
    if status is None:
        return Response(error="the record has no HTTP header")
    end = _HEADER_END.search(block, status.end(), _MAX_HEADER_BYTES)
    if end is None and len(block) > _MAX_HEADER_BYTES:
        return Response(error=f"the HTTP header is larger than {_MAX_HEADER_BYTES} bytes")
    header = (block if end is None else block[: end.start()]).lower()
    body = b"" if end is None else block[end.end() :]
    declared = _CONTENT_TYPE.search(header)
    content_type = b" ".join(declared[1].split()).decode("latin-1") if declared else ""
    names = _declared_codings(header)
    if len(names) > _MAX_CODINGS:
        error = f"the HTTP header declares {len(names)} codings, but the limit is {_MAX_CODINGS}"
        return Response(error=error)
    content, damage = decode_body(body, names, max_bytes)
    return Response(int(status[1]), content_type, content, damage)


def _declared_codings(header: bytes) -> list[str]:
    """Return the names of the codings in the order in which they were applied, from all lines of a field."""
    if b"-encoding" not in header:
        return []
    lines = sorted(_CODINGS.findall(header), key=lambda line: line[0] == b"transfer")
    names = (name.strip().decode("latin-1") for _, line in lines for name in line.split(b","))
    return [name for name in names if name not in ("", "identity")]

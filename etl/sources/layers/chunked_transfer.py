"""Undo the chunked transfer coding (RFC 9112, 7.1), as far as a body has it."""

import re

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?(\r?\n)")
_LAST_CHUNK = re.compile(rb"(?:[^\r\n:]+:[^\r\n]*(?:\r?\n|\Z))*(?:\r?\n|\r?\Z)")  # with trailers
_LINE_END = re.compile(rb"\r?\n|\r?\Z")


def undo_chunks(body: bytes) -> tuple[bytes, str | None] | None:
    r"""Return the content of the chunks, and why it ends early or None; None if the body is not chunked.

    Archives store many bodies without their chunks, with the header that declares them. So the first chunk
    must have its size, or the body must end inside it. Extensions, trailers and bytes after the last chunk
    are ignored, as in browsers.

    >>> undo_chunks(b"5;x=1\r\nHello\r\n0\r\n\r\n"), undo_chunks(b"5\r\nHell"), undo_chunks(b"<p>")
    ((b'Hello', None), (b'Hell', 'the body ends inside a chunk'), None)
    """
    chunks: list[bytes] = []
    position, why = 0, None
    while why is None and (line := _SIZE_LINE.match(body, position)):
        start, end = line.end(), line.end() + int(line[1], 16)
        # Some crawlers undo the chunks, but leave the header that names them. A text that happens to
        # begin with hexadecimal digits must not be taken for a chunk: the first one needs CR LF, or must
        # end where it says.
        is_credible = bool(chunks) or line[2] == b"\r\n"
        if start == end:
            is_last = bool(chunks) or _LAST_CHUNK.match(body, start) is not None
            return (b"".join(chunks), None) if is_last else None
        if end > len(body) and is_credible:
            why = "the body ends inside a chunk"
        elif end <= len(body) and (after := _LINE_END.match(body, end)):
            position = after.end()
        elif chunks:
            why = f"the chunk that ends at byte {end} does not have its size"
        else:
            return None
        chunks.append(body[start:end])
    if not chunks:
        return None
    at_end = "the body ends before the last chunk"
    why = why or (at_end if position == len(body) else f"no chunk starts at byte {position}")
    return b"".join(chunks), why

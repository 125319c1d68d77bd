"""Lines of a file, from all of it or from a piece, one block at a time.

A compressed file is read member by member. Where a stretch of it is damaged, the line in it is lost and
reported as ``Damage``, and the next line starts with the next member. So the lines of a piece are those that
start after a line feed or a damage in its members, and the first line of the file; the last one may end in a
later piece. ``tests/sources/test_damage.py`` checks that any cuts give the same lines.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from etl.errors import SourceError
from etl.sources.layers.members import Members, layer_of
from etl.sources.records import RecordBuffer
from etl.sources.source_settings import Source
from etl.sources.split import Split

READ_BYTES = 1 << 18
"""The number of bytes read from a stream at a time."""

_LONG_LINE_BYTES = 1 << 20
_EXCERPT_BYTES = 4000  # of a line that is lost by damage


class Damage(NamedTuple):
    """A damaged stretch of a file: what is wrong, and the start of the line that is lost."""

    error: str
    raw: str = ""


def report_damage(
    damage: Damage, row: int, split: Split, source: Source, buffer: RecordBuffer
) -> None:
    """Add a row for a damaged stretch; raise SourceError unless readable rows are to be kept."""
    if source.damaged == "quarantine":
        raise make_damage_error(
            split, damage, f"{buffer.rows} records before the damage are readable"
        )
    buffer.reject(row, "damaged", damage.error, raw=damage.raw)


def make_damage_error(split: Split, damage: Damage, readable: str) -> SourceError:
    """Return the error for a file that cannot be read to its end."""
    return SourceError(
        f"the {split.compression} stream is damaged or truncated ({damage.error}); {readable}",
        where=split.uri,
        hint="download the file again, set source.damaged to keep_readable, or leave it out",
    )


def read_chunks(
    file: pa.NativeFile, split: Split, read_bytes: int = READ_BYTES
) -> Iterator[bytes | Damage]:
    """Yield the bytes of the lines of a split, and where they are damaged."""
    if split.compression is not None:
        yield from _resize(_read_members(file, split), read_bytes)
        return
    remaining: int | None = None
    if not split.is_whole:
        start, stop = seek_lines(file, split)
        remaining = stop - start
    while chunk := file.read(read_bytes if remaining is None else min(remaining, read_bytes)):
        remaining = None if remaining is None else remaining - len(chunk)
        yield chunk


def _read_members(file: pa.NativeFile, split: Split) -> Iterator[bytes | Damage]:
    """Yield the content of the members of a piece from its first line on, and of its last line."""
    layer = layer_of(split.compression)
    members = Members(file, layer, uri=split.uri, start=split.start, stop=split.stop)
    # A piece has the lines that begin after its first line feed, up to the line that its last member
    # leaves open: the first line feed of the next piece ends that (``is_after``).
    has_begun, is_after = split.start == 0, False
    while True:
        content = members.read()
        # Damage hides where lines begin, so a line begins after it.
        if not content and members.damage is not None:
            if has_begun:
                yield Damage(members.damage)
            if is_after or not members.resume():
                return
            has_begun = True
        elif not content:
            if is_after or not has_begun or split.stop is None:
                return
            is_after = True
            members.pass_stop()
        elif is_after and (end := content.find(b"\n") + 1):
            yield content[:end]
            return
        elif has_begun:
            yield content
        elif end := content.find(b"\n") + 1:
            has_begun = True
            yield content[end:]


def _resize(chunks: Iterable[bytes | Damage], read_bytes: int) -> Iterator[bytes | Damage]:
    """Yield the same bytes in chunks of ``read_bytes``: each costs time, and long ones memory."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        if isinstance(chunk, bytes):
            held.append(chunk)
            size += len(chunk)
            if size < read_bytes:
                continue
        content, held, size = b"".join(held), [], 0
        for start in range(0, len(content), read_bytes):
            yield content[start : start + read_bytes]
        if isinstance(chunk, Damage):
            yield chunk
    if held:
        yield b"".join(held)


def read_blocks(
    chunks: Iterable[bytes | Damage], *, max_line_bytes: int, is_start: bool
) -> Iterator[str | Damage]:
    """Yield blocks of whole lines from bytes, and the damage between them.

    Only a line feed ends a line; the last line may lack one. Bytes that are not UTF-8 become escaped
    surrogates. A byte order mark at the start of the file is removed. A line longer than
    ``max_line_bytes`` is shortened, but stays at least one byte longer than that. A long line is a separate
    block, so that it need not be copied.
    """
    byte_order_mark = "\ufeff" if is_start else ""
    partial = bytearray()  # the start of a line whose end has not been read
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk._replace(raw=_decode(partial[:_EXCERPT_BYTES]))
            partial, byte_order_mark = bytearray(), ""
            continue
        if len(partial) > max_line_bytes:  # known to be too long: skip the rest of the line
            end = chunk.find(b"\n")
            chunk = b"" if end < 0 else chunk[end:]  # noqa: PLW2901
        # A line of many chunks is yielded alone: together with the rest of the block it would be copied
        # once more.
        if len(partial) > _LONG_LINE_BYTES and (end := chunk.find(b"\n") + 1):
            partial += chunk[:end]
            text = _decode(partial).removeprefix(byte_order_mark)
            partial, byte_order_mark, chunk = bytearray(), "", chunk[end:]  # noqa: PLW2901
            yield text
            del text
        cut = chunk.rfind(b"\n") + 1
        partial += chunk[:cut] if cut else chunk
        if cut:
            yield _decode(partial).removeprefix(byte_order_mark)
            partial, byte_order_mark = bytearray(chunk[cut:]), ""
    if partial:
        yield _decode(partial).removeprefix(byte_order_mark)


def _decode(content: bytearray) -> str:
    return content.decode("utf-8", "surrogateescape")


def find_line_start(file: pa.NativeFile, offset: int) -> int:
    """Return the offset of the first line that starts at or after ``offset``, or the file's size.

    The lines that start in [a, b) are thus the bytes from find_line_start(a) to find_line_start(b).
    """
    if offset == 0:
        return 0
    chunk_start = offset - 1
    file.seek(chunk_start)
    while chunk := file.read(READ_BYTES):
        end = chunk.find(b"\n")
        if end >= 0:
            return int(chunk_start + end + 1)
        chunk_start += len(chunk)
    return chunk_start


def seek_lines(file: pa.NativeFile, split: Split) -> tuple[int, int]:
    """Seek to the first line of a split; return the offsets where its lines start and end."""
    stop = split.size if split.stop is None else find_line_start(file, split.stop)
    start = find_line_start(file, split.start)
    file.seek(start)
    return start, stop


def count_lines(file: pa.NativeFile, split: Split) -> int:
    """Return the number of lines of the split, and of damaged stretches, which count as one each.

    An uncompressed file takes a core 1.5 GB/s with lines of 8 KB.
    """
    count, last = 0, b"\n"
    for chunk in read_chunks(file, split):
        if isinstance(chunk, Damage):
            count, last = count + 1, b"\n"
        else:
            count += chunk.count(b"\n")
            last = chunk[-1:] or last
    return count + (last != b"\n")

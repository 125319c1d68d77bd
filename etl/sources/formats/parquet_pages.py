"""Check page headers before Arrow reads the pages: what their rows take when decoded.

Arrow allocates what a page header claims. A dictionary of one long text, or a run of equal values, decodes
to a thousand times its size. ``PageChecks`` is the file that Arrow reads: it parses the page headers in the
bytes that pass through, so nothing is read twice.
"""

import io
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from etl.sources.formats import thrift
from etl.sources.formats.columnar import MAX_DECODED_BYTES
from etl.sources.formats.parquet_footer import Chunk

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_DICTIONARY_ENCODINGS = (2, 8)
_DELTA_ENCODINGS, _DELTA_BYTE_ARRAY = (5, 6, 7), 7
_HEADER_BYTES = (1 << 8, 1 << 12, 1 << 16, 1 << 24)  # tried in turn; Arrow's limit is 16 MB
_OFFSET_BYTES, _LEVEL_BYTES = 16, 4  # of a value in memory


class TooLargeError(Exception):
    """A batch of rows would take too much memory; smaller batches may not."""

    def __init__(self, column: str, size: int) -> None:
        super().__init__(column, size)
        self.column, self.size = column, size


class PageChecks(io.RawIOBase):
    """A file for Arrow to read pages from, in batches of ``rows`` rows.

    The values of some columns stay in their dictionary: those whose paths are in ``dictionaries``.

    Raises TooLargeError if a batch may take more than MAX_DECODED_BYTES, and ArrowInvalid if a page header
    is damaged.
    """

    def __init__(
        self, file: pa.NativeFile, chunks: Iterable[Chunk], rows: int, dictionaries: Collection[str]
    ) -> None:
        super().__init__()
        self._file, self._offset = file, 0
        self._pages = [
            _ChunkPages(chunk, rows, is_decoded=chunk.column.path not in dictionaries)
            for chunk in chunks
        ]
        self._readers: defaultdict[int, list[_ChunkPages]] = defaultdict(list)
        for pages in self._pages:
            self._readers[pages.offset].append(pages)

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def tell(self) -> int:  # noqa: D102
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:  # noqa: D102
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._file.size()}
        self._offset = start[whence] + offset
        return self._offset

    def read(self, size: int = -1) -> Any:  # noqa: D102
        self._file.seek(self._offset)
        content = self._file.read_buffer(size)
        if len(content):
            readers = self._readers[self._offset]
            if not readers:
                raise pa.ArrowInvalid(f"no column chunk starts at byte {self._offset}")
            pages = readers.pop()
            self._offset += len(content)
            pages.feed(memoryview(content))
            if pages.offset < pages.end:
                self._readers[pages.offset].append(pages)
            self._check()
        return content

    def _check(self) -> None:
        total = sum(pages.memory for pages in self._pages)
        if total > MAX_DECODED_BYTES:
            largest = max(self._pages, key=lambda pages: pages.memory)
            raise TooLargeError(largest.path, total)


class _ChunkPages:
    """The pages of a column chunk, of which one after the other is read."""

    def __init__(self, chunk: Chunk, rows: int, *, is_decoded: bool) -> None:
        self.path = chunk.column.path
        self.offset, self.end = chunk.start, chunk.start + chunk.length
        self._chunk, self._rows, self._is_decoded = chunk, rows, is_decoded
        self._head = b""  # the start of an incomplete header
        self._skip = 0  # bytes of the current page that are to come
        self._values = 0  # in the pages so far
        self._dictionary = self._page = 0  # the size of the largest
        self._batch = self._largest_batch = 0  # the size of the decoded values, at most

    @property
    def memory(self) -> int:
        """The size of a page, the dictionary and a batch of decoded values together."""
        return self._page + self._dictionary + self._largest_batch

    def feed(self, content: memoryview) -> None:
        """Parse the page headers in the next bytes."""
        self.offset += len(content)
        while len(content) and self._values < self._chunk.values:
            if self._skip:
                skipped = min(self._skip, len(content))
                content, self._skip = content[skipped:], self._skip - skipped
                continue
            for limit in _HEADER_BYTES:
                data = self._head + bytes(content[:limit])
                reader = thrift.Reader(data)
                try:
                    header = reader.numbers()
                except IndexError:
                    if limit < len(content):
                        continue
                    self._head = data
                    return
                except (KeyError, ValueError) as error:
                    raise pa.ArrowInvalid(f"{self.path!r}: bad page header ({error})") from error
                content = content[reader.position - len(self._head) :]
                self._head = b""
                try:
                    self._add_page(header)
                except (AttributeError, TypeError) as error:  # a field has another type
                    raise pa.ArrowInvalid(f"{self.path!r}: bad page header ({error})") from error
                break
            else:
                raise pa.ArrowInvalid(f"{self.path!r}: a page header is too long")

    def _add_page(self, header: dict[int, Any]) -> None:
        kind, size, stored = header.get(1), header.get(2, 0), header.get(3, 0)
        if size < 0 or stored < 0:
            raise pa.ArrowInvalid(f"{self.path!r}: a page has a negative size")
        self._skip = stored
        self._page = max(self._page, size + stored)
        if kind == _DICTIONARY_PAGE:
            self._dictionary = max(self._dictionary, size)
        elif kind == _DATA_PAGE:
            page = header.get(5, {})
            self._add_values(page.get(1, 0), page.get(2, 0), size)
        elif kind == _DATA_PAGE_V2:
            page = header.get(8, {})
            self._add_values(page.get(1, 0), page.get(4, 0), size)

    def _add_values(self, count: int, encoding: int, size: int) -> None:
        """Add the values of a page to the batches that they are in.

        In a list, any number of values may be in one row, so all pages count as one batch.
        """
        column = self._chunk.column
        count = max(count, 0)
        decoded = count if column.is_list else min(count, self._rows)
        value_bytes = _OFFSET_BYTES + (column.value_bytes or 0)
        if column.value_bytes is None and encoding in _DICTIONARY_ENCODINGS and self._is_decoded:
            value_bytes += self._dictionary
        elif encoding == _DELTA_BYTE_ARRAY:
            value_bytes += size
        memory = decoded * value_bytes
        memory += 0 if encoding in _DICTIONARY_ENCODINGS else size
        memory += _LEVEL_BYTES * count if encoding in _DELTA_ENCODINGS else 0
        memory += _LEVEL_BYTES * count if column.is_list else 0
        first, self._values = self._values, self._values + count
        last = max(first, self._values - 1)
        if column.is_list or first % self._rows:  # the page continues a batch
            self._batch += memory
        else:
            self._batch = memory
        self._largest_batch = max(self._largest_batch, self._batch)
        if not column.is_list and first // self._rows != last // self._rows:
            self._batch = memory

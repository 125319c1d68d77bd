"""Check pages before Arrow reads them: what their rows take when decoded, and their checksums.

Arrow allocates what a page header claims. A dictionary of one long text, or a run of equal values, decodes
to a thousand times its size. ``PageChecks`` is the file that Arrow reads: it parses the page headers in the
bytes that pass through, so nothing is read twice. It also compares pages with their checksums, where a writer
added them: that takes 0.1 s for 1.6 GB as stored, and names the column, which Arrow's own check does not.
"""

import io
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
from isal import isal_zlib

from etl.parquet import thrift
from etl.sources.formats.columnar import MAX_DECODED_BYTES
from etl.sources.formats.nearby_ranges import NearbyRanges
from etl.sources.formats.parquet_footer import Column, ColumnChunk

_DICTIONARY_PAGE = 2
_DATA_PAGES = {0: (5, 2), 3: (8, 4)}
"""The kind of a data page -> the field of its data page header, and the field of the encoding in that."""
_PAGE_HEADERS = (5, 8)
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
    """A file for Arrow to read the pages of neighbouring row groups from, in batches of ``rows`` rows.

    The values of some columns stay in their dictionary: those whose paths are in ``dictionaries``. Column
    chunks near each other are read together if ``is_small``.

    Raises TooLargeError if a batch may take more than MAX_DECODED_BYTES, and ArrowInvalid if a page header
    is damaged, if a page differs from its checksum, or if the pages do not have as many values as the footer
    claims.
    """

    def __init__(
        self,
        file: pa.NativeFile,
        chunks: Sequence[ColumnChunk],
        rows: int,
        dictionaries: Collection[str],
        *,
        is_small: bool,
    ) -> None:
        super().__init__()
        self._offset, self._memory, self._size = 0, 0, file.size()
        ranges = ((chunk.start, chunk.start + chunk.length) for chunk in chunks)
        self._file = NearbyRanges(file, ranges if is_small else ())
        self._columns: dict[int, _ColumnMemory] = {}
        self._readers: defaultdict[int, list[_ChunkPages]] = defaultdict(list)
        for chunk in chunks:
            memory = self._columns.get(chunk.column.index)
            if memory is None:
                is_decoded = chunk.column.path not in dictionaries
                memory = _ColumnMemory(chunk.column, rows, is_decoded=is_decoded)
                self._columns[chunk.column.index] = memory
            self._readers[chunk.start].append(_ChunkPages(chunk, memory))

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def tell(self) -> int:  # noqa: D102
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:  # noqa: D102
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}
        self._offset = start[whence] + offset
        return self._offset

    def read(self, size: int = -1) -> Any:  # noqa: D102
        content = self._file.read(self._offset, size)
        if len(content):
            readers = self._readers[self._offset]
            if not readers:
                raise pa.ArrowInvalid(f"no column chunk starts at byte {self._offset}")
            pages = readers.pop()
            self._offset += len(content)
            before = pages.memory.total
            pages.feed(memoryview(content))
            if pages.offset < pages.end:
                self._readers[pages.offset].append(pages)
            self._memory += pages.memory.total - before
            if self._memory > MAX_DECODED_BYTES:
                largest = max(self._columns.values(), key=lambda memory: memory.total)
                raise TooLargeError(largest.column.path, self._memory)
        return content


class _ColumnMemory:
    """The memory that the values of a column take, page by page."""

    def __init__(self, column: Column, rows: int, *, is_decoded: bool) -> None:
        self.column = column
        self._rows, self._is_decoded = rows, is_decoded
        self._values = 0  # in the pages so far
        self._dictionary = 0  # the size of the current one
        self._largest_page = self._largest_dictionary = 0
        self._batch = self._largest_batch = 0  # the size of the decoded values, at most

    @property
    def total(self) -> int:
        """The size of a page, the dictionary and a batch of decoded values together."""
        return self._largest_page + self._largest_dictionary + self._largest_batch

    def add_page(self, size: int) -> None:
        """Add a page of any kind, in bytes as stored and as uncompressed."""
        self._largest_page = max(self._largest_page, size)

    def set_dictionary(self, size: int) -> None:
        """Set the size of the dictionary of the pages that follow."""
        self._dictionary = size
        self._largest_dictionary = max(self._largest_dictionary, size)

    def add_values(self, count: int, encoding: int, size: int) -> None:
        """Add the values of a page to the batches that they are in.

        In a list, any number of values may be in one row, so all pages count as one batch.
        """
        column = self.column
        # At most a batch of values is decoded at once.
        decoded = count if column.is_list else min(count, self._rows)
        value_bytes = _OFFSET_BYTES + (column.value_bytes or 0)
        # In the worst case, each value is the dictionary's longest, which may have all of its bytes.
        if column.value_bytes is None and encoding in _DICTIONARY_ENCODINGS and self._is_decoded:
            value_bytes += self._dictionary
        elif encoding == _DELTA_BYTE_ARRAY:
            value_bytes += size
        memory = decoded * value_bytes
        memory += 0 if encoding in _DICTIONARY_ENCODINGS else size
        memory += _LEVEL_BYTES * count if encoding in _DELTA_ENCODINGS else 0
        memory += _LEVEL_BYTES * count if column.is_list else 0
        # A batch of 1,000 rows over pages of 600: the second page ends the first batch and begins the
        # next one.
        first, self._values = self._values, self._values + count
        last = max(first, self._values - 1)
        if column.is_list or first % self._rows:  # the page continues a batch
            self._batch += memory
        else:
            self._batch = memory
        self._largest_batch = max(self._largest_batch, self._batch)
        if not column.is_list and first // self._rows != last // self._rows:
            self._batch = memory


class _ChunkPages:
    """The pages of a column chunk, of which one after the other is read."""

    def __init__(self, chunk: ColumnChunk, memory: _ColumnMemory) -> None:
        self.memory = memory
        self.offset, self.end = chunk.start, chunk.start + chunk.length
        self._path, self._expected = chunk.column.path, chunk.values
        self._head = b""  # the start of an incomplete header
        self._pages = self._values = 0  # so far
        self._skip = 0  # bytes of the current page that are to come
        self._expected_crc: int | None = None  # of the current page
        self._crc = 0  # of its bytes so far

    def feed(self, content: memoryview) -> None:
        """Check the pages in the next bytes."""
        self.offset += len(content)
        while len(content):
            if self._skip:
                content = self._pass_page(content)
            elif self._values < self._expected:
                content = self._pass_header(content)
            else:
                break
        if self._values > self._expected or (
            self.offset >= self.end and self._values < self._expected
        ):
            raise self._invalid(
                f"its pages have {self._values} values, but the footer claims {self._expected}"
            )

    def _pass_page(self, content: memoryview) -> memoryview:
        """Return what follows the current page; it may be incomplete."""
        page, rest = content[: self._skip], content[self._skip :]
        self._skip -= len(page)
        if self._expected_crc is not None:
            self._crc = isal_zlib.crc32(page, self._crc)
            if not self._skip and self._crc != self._expected_crc:
                raise self._invalid(
                    f"page {self._pages - 1} is damaged: its checksum is {self._crc:08x},"
                    f" but {self._expected_crc:08x} was written"
                )
        return rest

    def _pass_header(self, content: memoryview) -> memoryview:
        """Return what follows the next page header; empty if it is incomplete."""
        # Most headers take 50 bytes, but statistics may make them long: try with more only if a header
        # is incomplete.
        for limit in _HEADER_BYTES:
            data = self._head + bytes(content[:limit])
            reader = thrift.ThriftReader(data)
            try:
                header = reader.numbers(_PAGE_HEADERS)
            except IndexError:
                if limit < len(content):
                    continue
                self._head = data
                return content[:0]
            except (KeyError, ValueError) as error:
                raise self._invalid(f"bad page header ({error})") from error
            content = content[reader.position - len(self._head) :]
            self._head = b""
            try:
                self._add_page(header)
            except (AttributeError, TypeError) as error:  # a field has another type
                raise self._invalid(f"bad page header ({error})") from error
            return content
        raise self._invalid("a page header is too long")

    def _add_page(self, header: dict[int, Any]) -> None:
        kind, size, stored = header.get(1), header.get(2, 0), header.get(3, 0)
        if size < 0 or stored < 0:
            raise self._invalid("a page has a negative size")
        crc = header.get(4)
        self._expected_crc = None if crc is None else crc & 0xFFFFFFFF
        self._crc, self._skip = 0, stored
        self._pages += 1
        self.memory.add_page(size + stored)
        if kind == _DICTIONARY_PAGE:
            self.memory.set_dictionary(size)
        elif kind in _DATA_PAGES:
            field, encoding = _DATA_PAGES[kind]
            page = header.get(field, {})
            count = max(page.get(1, 0), 0)
            self._values += count
            self.memory.add_values(count, page.get(encoding, 0), size)

    def _invalid(self, error: str) -> pa.ArrowInvalid:
        return pa.ArrowInvalid(f"column {self._path!r}: {error}")

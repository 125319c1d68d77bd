"""Open a view of a token table: its index, and the columns that come with the batches."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from etl.loader.fetch.selected_rows import TableRows
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochPlan
from etl.loader.sharded_dataset import Reader
from etl.loader.views.document_columns import ColumnValues, ReaderWithColumns, SampleDocuments
from etl.loader.views.file_cache import FileCache
from etl.loader.views.pinned_documents import find_pinned
from etl.loader.views.select_rows import join_rows, select_rows
from etl.loader.views.view import View


@dataclass(frozen=True)
class OpenView:
    """A view of a table, with the folders of the cache that it reads."""

    index: TableIndex
    rows: TableRows | None = None  # None: without columns
    columns: tuple[tuple[str, ColumnValues], ...] = ()
    folders: Sequence[Path] = ()

    @staticmethod
    def of(index: TableIndex, view: View | None) -> "OpenView":
        """Open a view of a table; without one, the result has the table itself.

        Raises LoaderError if the view is not valid for the table, or selects no tokens, and StorageError if a
        file cannot be read or the cache cannot be used.
        """
        if view is None or not (view.selects or view.columns) or not index.num_tokens:
            return OpenView(index)
        cache, pinned = FileCache(view.cache), find_pinned(index)
        pinned.documents.check_columns(view.columns)
        rows, folder = join_rows(index, pinned, cache)
        folders = [folder]
        if view.selects:
            index, folder = select_rows(index, rows, view=view, pinned=pinned, cache=cache)
            folders.append(folder)
        names = dict.fromkeys(view.columns)
        columns = [(name, ColumnValues.of(pinned.documents, name, cache)) for name in names]
        folders += [values.folder for _, values in columns]
        return OpenView(index, index.rows or rows, tuple(columns), folders)

    def add_columns(
        self, reader: AbstractContextManager[Reader], plan: EpochPlan, epoch: int
    ) -> AbstractContextManager[Reader]:
        """Return a reader that adds the columns to the batches of an epoch."""
        if not self.columns or self.rows is None:
            return reader
        documents = SampleDocuments(self.rows, plan, epoch)
        return ReaderWithColumns(reader, dict(self.columns), documents, is_padded=plan.overlap == 0)

"""Open a view of a token table: its index, and the columns that come with the batches."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Format
from etl.loader.fetch.file_cache import FileCache
from etl.loader.fetch.read_index import read_tokenizers
from etl.loader.fetch.selected_rows import TableRows
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_transform import TokenTransform, TransformedDocuments
from etl.loader.one_pass import Reader
from etl.loader.order.epoch import EpochPlan
from etl.loader.views.batch_columns import ColumnValues, ReaderWithColumns, SampleDocuments
from etl.loader.views.pinned_documents import find_pinned
from etl.loader.views.prefix_reader import PrefixReader
from etl.loader.views.prefixes import add_prefixes
from etl.loader.views.select_rows import join_rows, select_rows
from etl.loader.views.view import Prefix, View

OpenReader = Callable[[Format], AbstractContextManager[Reader]]


@dataclass(frozen=True)
class OpenView:
    """A view of a table, with the folders of the cache that it reads."""

    index: TableIndex
    prefix: Prefix | None = None
    rows: TableRows | None = None  # None: without a view
    columns: tuple[tuple[str, ColumnValues], ...] = ()
    folders: Sequence[Path] = ()

    @staticmethod
    def of(index: TableIndex, view: View | None) -> "OpenView":
        """Open a view of a table; without one, the result has the table itself.

        Raises LoaderError if the view is not valid for the table, or selects no tokens, and StorageError if a
        file cannot be read or the cache cannot be used.
        """
        is_used = view is not None and (view.selects or view.columns or view.prefix)
        if view is None or not is_used or not index.num_tokens:
            return OpenView(index)
        cache, pinned = FileCache(view.cache), find_pinned(index)
        pinned.documents.check_columns(view.columns)
        rows, folder = join_rows(index, pinned, cache)
        folders = [folder]
        if view.selects:
            index, rows, folder = select_rows(index, rows, view=view, pinned=pinned, cache=cache)
            folders.append(folder)
        if view.prefix is not None:
            index, rows, added = add_prefixes(
                index, rows, prefix=view.prefix, documents=pinned.documents, cache=cache
            )
            folders += added
        names = dict.fromkeys(view.columns)
        columns = [(name, ColumnValues.of(pinned.documents, name, cache)) for name in names]
        folders += [values.folder for _, values in columns]
        return OpenView(index, view.prefix, rows, tuple(columns), folders)

    def check_no_prefix(self, other: str) -> None:
        """Raise LoaderError if the view adds prefixes, which ``other`` cannot have."""
        if self.prefix:
            raise LoaderError(
                f"the prefix of a View is not for {other}",
                where=self.index.url,
                hint="leave it out of View; columns, where, repeat and split work with everything",
            )

    def transform(self, transform: TokenTransform, *, seed: int) -> "OpenView":
        """Return the view of the same documents, of which some are transformed.

        Raises LoaderError if the transform does not fit the table.
        """
        tokenizers = read_tokenizers(self.index)
        try:
            transformed = TransformedDocuments.of(
                transform, self.index.group_documents, seed=seed, tokenizers=tokenizers
            )
        except LoaderError as error:
            raise LoaderError(error.what, where=self.index.url, hint=error.hint) from error
        return replace(self, index=self.index.transform(transformed))

    def has_prefixes(self, sample: int) -> bool:
        """Return whether the documents of a sample, counted from the first epoch, keep their prefixes."""
        if self.prefix is None:
            return False
        return self.prefix.until_sample is None or sample < self.prefix.until_sample

    def open_reader(
        self,
        open_plain: OpenReader,
        batch_format: Format,
        plan: EpochPlan,
        *,
        epoch: int,
        samples_before: int,
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches with the prefixes and columns of the view.

        ``samples_before`` counts the samples of all earlier epochs.
        """
        if self.rows is None or not (self.columns or self.prefix):
            return open_plain(batch_format)
        documents = SampleDocuments(self.rows, plan, epoch, self.index.transformed)

        def has_prefixes(sample: int) -> bool:
            return self.has_prefixes(samples_before + sample)

        def documents_of(sample: int) -> np.ndarray:
            return documents.of(sample, has_prefixes=self.prefix is None or has_prefixes(sample))

        if self.prefix is None:
            reader = open_plain(batch_format)
        else:
            reader = PrefixReader(open_plain, batch_format, has_prefixes, documents.ends_at_start)
        if not self.columns:
            return reader
        return ReaderWithColumns(
            reader, dict(self.columns), documents_of, is_padded=batch_format.is_padded
        )

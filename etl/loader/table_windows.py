"""`TableWindows`: the windows of one version of a table, as a dataset or a mixture reads them."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from etl.loader.batches.best_fit_batches import BestFitReader
from etl.loader.batches.document_boundaries import Format
from etl.loader.batches.packed import IN_ORDER, BlockBudget, PackedReader
from etl.loader.batches.padded import PaddedReader
from etl.loader.fetch.table_index import TableIndex
from etl.loader.find_documents import Locator
from etl.loader.one_pass import Reader
from etl.loader.order.epochs import EqualEpochs
from etl.loader.order.schedule import Schedule
from etl.loader.order.unit_plan import UnitPlan
from etl.loader.order.window_schedule import WindowSchedule
from etl.loader.views.open_view import OpenView


@dataclass(frozen=True, kw_only=True)
class TableWindows:
    """Windows of an open table in the order of their epochs: reads them, and finds their documents."""

    index: TableIndex
    view: OpenView
    epochs: EqualEpochs | WindowSchedule
    format: Format

    def with_seq_lens(self, seq_lens: Schedule[int]) -> "TableWindows":
        """Return the windows with the same lengths from other samples on, as part of a mixture.

        Nothing is opened again. If the length does not change, the windows remain the same.
        """
        return replace(self, epochs=self.epochs.with_seq_lens(seq_lens))

    def reader(
        self,
        epoch: int,
        batch_format: Format | None = None,
        *,
        world_size: int = 1,
        is_mixture: bool = False,
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, in this format or another.

        ``world_size`` ranks divide the lanes, and so the memory for reading ahead. A mixture takes samples
        slightly out of order, and needs larger buffers.
        """
        plan, (first_sample, _, _, seq_len) = self.epochs.plan(epoch), self.epochs.of(epoch)
        index = self.index.in_epoch(plan.stream_epoch_of(epoch))

        def open_plain(batch_format: Format) -> AbstractContextManager[Reader]:
            options: dict[str, Any] = {
                "epoch": epoch,
                "batch_format": batch_format,
                "world_size": world_size,
            }
            if isinstance(plan, UnitPlan):
                return BestFitReader(index, plan, is_mixture=is_mixture, **options)
            options["budget"] = BlockBudget.for_mixture(plan) if is_mixture else IN_ORDER
            if batch_format.is_padded:
                return PaddedReader(index, plan, seq_len=seq_len, **options)
            return PackedReader(index, plan, **options)

        return self.view.open_reader(
            open_plain,
            batch_format or self.format,
            plan,
            epoch=epoch,
            samples_before=first_sample,
        )

    def locator(self, epoch: int) -> Locator:
        """Return what finds the documents of many samples of an epoch."""
        first_sample, _, _, seq_len = self.epochs.of(epoch)
        return Locator(
            self.index,
            self.epochs.plan(epoch),
            epoch=epoch,
            truncated_at=seq_len + 1 if self.format.is_padded else None,
            has_prefixes=lambda sample: self.view.has_prefixes(first_sample + sample),
        )

"""`TableWindows`: the windows of one version of a table, as a dataset or a mixture reads them."""

from collections.abc import Iterator
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
from etl.loader.order.epochs import EqualEpochs, SourceEpochs
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

    def with_epochs(self, epochs: SourceEpochs) -> "TableWindows":
        """Return the windows with the same lengths from other samples on; nothing is opened again."""
        assert isinstance(epochs, EqualEpochs | WindowSchedule)
        return replace(self, epochs=epochs)

    def of(self, epoch: int) -> "TableWindows":  # noqa: ARG002 - there is one plan
        """Return the windows of an epoch."""
        return self

    def plans(self) -> Iterator[tuple[int, int | None, "TableWindows"]]:
        """Yield the windows of each plan, with its first epoch and the epoch after its last one."""
        yield 0, None, self

    def versions(self, epoch: int) -> list[int]:  # noqa: ARG002 - there is one plan
        """Return the versions that are read from an epoch on."""
        return [self.index.version]

    def open_from(self, epoch: int) -> None:
        """Open the plans that are read from an epoch on; this one is open."""

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

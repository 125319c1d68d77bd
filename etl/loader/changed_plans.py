"""The windows of a training that has changed its plan: other epochs are of other versions, or lengths.

A plan decides the order of an epoch: a version of the table, the length of its windows, the documents that
are left out, and the settings of the shuffle. A change begins with an epoch of which nothing is read yet. So
each epoch has one plan, and all of its samples once.

A state has the settings of the newest plan, and a record of each earlier one: its settings, the epoch with
which it ends, and how many samples its epochs have. The tables of earlier plans are opened when a sample of
them is read, or looked up. A training that has finished their epochs does without.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from etl.loader.batches.document_boundaries import Format
from etl.loader.find_documents import Locator
from etl.loader.one_pass import Reader
from etl.loader.order.epochs import ChangedEpochs, EpochRange, Epochs, EqualEpochs, SourceEpochs
from etl.loader.state import OtherOrderError, State
from etl.loader.table_windows import TableWindows

_SETTINGS = ("version", "seq_len", "lanes", "block_tokens", "run_tokens", "view", "rows")
"""The settings of a state that plans may differ in."""
_COUNTS = ("num_samples", "used_lanes", "order", "end")


@dataclass(frozen=True)
class EarlierPlan:
    """A plan that ends with an epoch, and is opened on first use."""

    epochs: EpochRange
    end: int  # the epoch after its last one
    version: int
    open: Callable[[], TableWindows]

    @cached_property
    def windows(self) -> TableWindows:
        """The windows; raises LoaderError if the table has others, or no longer the version."""
        opened = self.open()
        assert isinstance(opened.epochs, EqualEpochs)
        if opened.epochs.order != self.epochs.order:
            raise OtherOrderError(
                f"the plan before epoch {self.end} belongs to another order of samples",
                where=opened.index.url,
                hint="name the lake that the state was saved with",
            )
        epochs = replace(
            opened.epochs,
            first_epoch=self.epochs.first_epoch,
            first_sample=self.epochs.first_sample,
        )
        return replace(opened, epochs=epochs)


@dataclass(frozen=True)
class ChangedWindows:
    """The windows of the plans of a training, in their order; each epoch is read by its own plan."""

    earlier: Sequence[EarlierPlan]
    newest: TableWindows

    @property
    def epochs(self) -> ChangedEpochs:
        """The epochs of all plans."""
        assert isinstance(self.newest.epochs, EqualEpochs)
        return ChangedEpochs((*(plan.epochs for plan in self.earlier), self.newest.epochs))

    def of(self, epoch: int) -> TableWindows:
        """Return the windows of an epoch."""
        plan = next((plan for plan in self.earlier if epoch < plan.end), None)
        return self.newest if plan is None else plan.windows

    def plans(self) -> Iterator[tuple[int, int | None, TableWindows]]:
        """Yield the windows of each plan, with its first epoch and the epoch after its last one."""
        for plan in self.earlier:
            yield plan.epochs.first_epoch, plan.end, plan.windows
        yield self.earlier[-1].end, None, self.newest

    def versions(self, epoch: int) -> list[int]:
        """Return the versions that are read from an epoch on."""
        later = [plan.version for plan in self.earlier if epoch < plan.end]
        return list(dict.fromkeys([*later, self.newest.index.version]))

    def open_from(self, epoch: int) -> None:
        """Open the plans that are read from an epoch on, which raises the errors of opening them."""
        for plan in self.earlier:
            if epoch < plan.end:
                _ = plan.windows

    def with_epochs(self, epochs: SourceEpochs) -> "ChangedWindows":  # noqa: ARG002 - as in TableWindows
        """Return the same windows: their lengths change only with a plan."""
        return self

    def reader(
        self,
        epoch: int,
        batch_format: Format | None = None,
        *,
        world_size: int = 1,
        is_mixture: bool = False,
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, as ``TableWindows`` does."""
        windows = self.of(epoch)
        return windows.reader(epoch, batch_format, world_size=world_size, is_mixture=is_mixture)

    def locator(self, epoch: int) -> Locator:
        """Return what finds the documents of many samples of an epoch."""
        return self.of(epoch).locator(epoch)


def change_windows(
    newest: TableWindows, state: Mapping[str, Any], open_plan: Callable[[State], TableWindows]
) -> ChangedWindows:
    """Return the windows of the plans of a state, and of the newest one.

    ``open_plan`` opens the windows with some settings.
    """
    earlier: list[EarlierPlan] = []
    epoch = sample = 0
    for record in state["earlier"]:
        epochs = EpochRange(
            record["num_samples"],
            record["used_lanes"],
            record["seq_len"],
            record["order"],
            first_epoch=epoch,
            first_sample=sample,
        )
        earlier.append(
            EarlierPlan(
                epochs,
                record["end"],
                record["version"],
                partial(open_plan, settings_of_plan(state, record)),
            )
        )
        epoch, sample = record["end"], epochs.of(record["end"]).first_sample
    assert isinstance(newest.epochs, EqualEpochs)
    epochs_from_there = replace(newest.epochs, first_epoch=epoch, first_sample=sample)
    return ChangedWindows(earlier, replace(newest, epochs=epochs_from_there))


def settings_of_plan(state: Mapping[str, Any], record: Mapping[str, Any]) -> State:
    """Return the settings of an earlier plan of a state.

    >>> settings_of_plan({"seed": 3, "version": 7, "earlier": []}, {"version": 5, "end": 2})
    {'seed': 3, 'version': 5}
    """
    common = {name: value for name, value in state.items() if name not in (*_SETTINGS, "earlier")}
    return common | {name: value for name, value in record.items() if name not in _COUNTS}


def changed_settings(settings: State, epochs: Epochs, changes: State, *, first_epoch: int) -> State:
    """Return the settings of a dataset with changes from an epoch on, of which nothing may be read yet."""
    assert isinstance(epochs, EqualEpochs | ChangedEpochs)
    earlier: list[State] = list(settings.get("earlier", []))
    ranges = epochs.ranges if isinstance(epochs, ChangedEpochs) else (epochs,)
    own = {name: settings[name] for name in _SETTINGS if name in settings}
    newest = {
        **own,
        "num_samples": ranges[-1].num_samples,
        "used_lanes": ranges[-1].lanes,
        "order": ranges[-1].order,
        "end": first_epoch,
    }
    # A plan that has not begun leaves no trace.
    records = [
        {**record, "end": min(record["end"], first_epoch)}
        for record, each in zip([*earlier, newest], ranges, strict=True)
        if each.first_epoch < first_epoch
    ]
    changed = {**settings, **changes, "earlier": records}
    return changed if records else {n: value for n, value in changed.items() if n != "earlier"}

"""`TokenDataset`: one version of a token table as a sharded and resumable torch dataset."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from etl.errors import LoaderError
from etl.loader import find_documents
from etl.loader.batches.document_boundaries import Format
from etl.loader.changed_plans import (
    ChangedWindows,
    change_windows,
    changed_settings,
)
from etl.loader.check_table import Expect, check_same_tokenizer
from etl.loader.fetch.range_requests import Remote
from etl.loader.fetch.read_index import read_index, read_tokenizers
from etl.loader.fetch.token_transform import TokenTransform, transform_to_json
from etl.loader.measure_evenness import measure_evenness
from etl.loader.one_pass import Reader
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.evenness import Evenness
from etl.loader.order.schedule import Schedule
from etl.loader.order.shuffle_settings import Shuffle
from etl.loader.order.unit_plan import UnitPlan
from etl.loader.plan_change import NO_CHANGE, PlanChange
from etl.loader.plan_epochs import plan_epochs
from etl.loader.ranks import Shard
from etl.loader.saved_settings import saved_options
from etl.loader.sharded_dataset import ShardedDataset
from etl.loader.skipped_steps import check_gaps_before, gaps_of
from etl.loader.state import State, find_state
from etl.loader.table_windows import TableWindows
from etl.loader.views.open_view import OpenView
from etl.loader.views.view import View
from etl.schemas import TokenizerRecord

_PLAIN = Format()
_ALL = Shard()
_DEFAULT_REMOTE = Remote()


class TokenDataset(ShardedDataset):
    """Packed windows of ``seq_len`` tokens with labels shifted by one, in a reproducible order.

    Opening a dataset reads the log and the footers of the table, and tokens only to check ``bos`` or ``eos``.
    To pack whole documents, it also reads the lengths of all of them and plans their windows, in 1 to 3 s per
    million documents. Rows that deletion vectors strike are left out; for them, it reads the vectors and the
    lengths of the documents in their row groups. Footers of a table in an object store, the places of struck
    rows and these plans are kept in a folder of the local disk, ``~/.cache/tokenlake/loader`` or below
    ``XDG_CACHE_HOME``, for the next process; ``open_shared`` opens a dataset once for all ranks of a job.

    - ``lake``: the URL of a lake, or of its table ``tokens``.
    - ``seq_len``: tokens per window, or a ``Schedule`` of it; see below.
    - ``version``: a version number or the name of a release. By default the newest version, which is then
      pinned (``dataset.version``).
    - ``shuffle``: True, False (the order of the table), or the settings.
    - ``shard``: which processes divide the samples; by default all processes of torch.distributed.
    - ``format``: adds document boundaries to the batches, packs whole documents, or pads one per row.
      ``Format.huggingface()`` is for models of the library transformers, which shift the labels themselves.
    - ``remote``: read-ahead and disk cache for a table in an object store.
    - ``expect``: checks that the table fits the model.
    - ``view``: which documents are read, how often, and which of their columns come with the batches.
    - ``transform``: changes the tokens of some documents before they are packed, as ``FillInTheMiddle`` does.
    - ``repeat``: whether a pass that was cut short begins again with the same samples; see below.

    One pass is one epoch; the next pass reads the next epoch, which has its own order. ``set_epoch`` selects
    another one. ``dataset.batches(8)`` yields batches in the order of the plan (with ``prefetch=4``, a thread
    prepares them ahead). It also works in
    ``DataLoader(dataset.batches(8), batch_size=None, num_workers=2)`` and in torchdata's StatefulDataLoader.
    A plain ``DataLoader(dataset, batch_size=8)`` has the same batches, also with workers, but it is slower.

    If a loop leaves a pass before its end, the next pass continues behind the last batch that the loop was
    given. To look at a batch without consuming it, take it from a copy, ``copy.copy(dataset)``, which has its
    own position. DataLoader workers, and loaders that accelerate has prepared, run ahead of the loop, so that
    the batch is unknown: the next pass raises LoaderError until ``load_state_dict`` or ``set_epoch`` has
    selected a position. (If the workers had already prepared all batches of the epoch, it counts as
    complete.) ``repeat=True`` is for loops that shall read the same samples again, as ``overfit_batches`` of
    Lightning; ``dataset.evaluation`` always does.

    With ``seq_len=Schedule([(0, 2048), (1_000_000, 8192)])``, sample 1,000,000, counted over all epochs, is
    the first window of 8,192 tokens. All windows of a pass have one length, ``dataset.seq_len``: a pass ends
    with the epoch or where the length changes, and the next one continues in the same epoch with the tokens
    that no window had. The epoch of the state and of ``set_epoch`` is then the number of the pass.

    While the dataset is read, a lease keeps the files of its version from `etl vacuum`. If the lake is
    read-only, a warning says so; `etl release` keeps a version in any case.

    Rank and world size are those at the moment when a pass begins. The Hugging Face Trainer takes the dataset
    itself, and Accelerate ``prepare(DataLoader(dataset, batch_size=8))``: they distribute the samples, and
    each window comes once in an epoch. Batches are never distributed again: ``dataset.batches(8)`` needs no
    ``prepare``.

    Raises LoaderError if the table does not exist, has fewer than seq_len + 1 tokens, or does not meet
    ``expect``.
    """

    def __init__(  # noqa: PLR0913 - the one call of a training script
        self,
        lake: str,
        *,
        seq_len: int | Schedule[int],
        version: int | str | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        shard: Shard = _ALL,
        format: Format = _PLAIN,  # noqa: A002 - the best name for callers
        remote: Remote = _DEFAULT_REMOTE,
        expect: Expect | None = None,
        view: View | None = None,
        transform: TokenTransform | None = None,
        repeat: bool = False,
    ) -> None:
        self.format = format
        self.view = view
        self.columns = () if view is None else tuple(dict.fromkeys(view.columns))
        left_out = [] if view is None else [*view.leave_out]
        index = read_index(lake, version=version, remote=remote, leave_out=left_out)
        if expect is not None:
            records = read_tokenizers(index)
            expect.check(records, where=index.url)
            expect.check_ends(records, index)
            index = replace(index, vocab_size=expect.vocab_size)
        opened = OpenView.of(index, view)
        if format.pack is not None:
            opened.check_no_prefix("pack='best_fit'")
        if transform is not None:
            opened.check_no_prefix("a transform")
            opened = opened.transform(transform, seed=seed)
        index = opened.index
        epochs, settings = plan_epochs(
            index, seq_len=seq_len, seed=seed, shuffle=shuffle, batch_format=format
        )
        windows = TableWindows(index=index, view=opened, epochs=epochs, format=format)
        self.windows: TableWindows | ChangedWindows = windows
        """The windows in the order of their epochs."""
        identity: dict[str, Any] = {
            "version": index.version,
            "seq_len": [*map(list, seq_len)] if isinstance(seq_len, Schedule) else seq_len,
            "seed": seed,
            "padded": int(format.is_padded),
            "best_fit": int(format.pack is not None),
            "tensors": asdict(format),
            "lanes": 0 if settings is None else settings.lanes,
            "block_tokens": 0 if settings is None else settings.block_tokens,
            "run_tokens": 0 if settings is None else settings.run_tokens,
        }
        if view is not None:
            identity |= {"view": view.to_json(), "rows": index.rows_digest}
        if transform is not None:
            identity["transform"] = transform_to_json(transform)
        super().__init__(
            where=index.url, identity=identity, epochs=epochs, shard=shard, repeat=repeat
        )

    @classmethod
    def from_state(
        cls,
        lake: str,
        state: Mapping[str, Any],
        *,
        change: PlanChange = NO_CHANGE,
        **options: Any,
    ) -> Self:
        """Open the dataset of a saved state and resume there, with some changes from the next epoch on.

        ``options`` are as for a new dataset. Raises LoaderError if the state is of another table, if a
        version that is still to be read is no longer there, or if a change is not possible.
        """
        own_state = find_state(state)
        if "seq_len" not in own_state:
            raise LoaderError(
                "the state is of a mixture, not of a single table",
                hint="use TokenMixture.from_state, with a lake for each source",
            )
        dataset = cls.from_saved_settings(lake, own_state, **options)
        dataset.load_state_dict(own_state)
        if changes := change.of_table(own_state, where=dataset.where):
            saved = dataset.state_dict()
            first_epoch = saved["epoch"] + int(saved["consumed"] > 0)
            check_gaps_before(gaps_of(saved), first_epoch, where=dataset.where)
            dataset = dataset.changed(lake, changes, first_epoch=first_epoch, **options)
            dataset.load_state_dict(saved)
        dataset.windows.open_from(dataset.epoch)
        return dataset

    def changed(self, lake: str, changes: State, *, first_epoch: int, **options: Any) -> Self:
        """Return the same dataset with other settings from an epoch on, at its first sample."""
        settings = changed_settings(self.identity, self.epochs, changes, first_epoch=first_epoch)
        options.pop("view", None)  # the settings have it, with the documents that are left out
        changed = self.from_saved_settings(lake, settings, **options)
        tokenizers = {
            f"version {each.newest.index.version}": each.tokenizers() for each in (self, changed)
        }
        check_same_tokenizer(tokenizers, where=self.where)
        return changed

    @classmethod
    def from_saved_settings(cls, lake: str, state: Mapping[str, Any], **options: Any) -> Self:
        """Open the dataset of a saved state at its first sample; ``options`` as for a new dataset."""
        dataset = cls(lake, **saved_options(state, options))
        if state.get("earlier"):
            dataset._follow(state, partial(cls._open_windows, lake, options))
        return dataset

    def _follow(self, state: Mapping[str, Any], open_plan: Callable[[State], TableWindows]) -> None:
        """Let the windows follow the earlier plans of a state, which are opened by their settings."""
        self.windows = change_windows(self.newest, state, open_plan)
        self.epochs, self.identity = (
            self.windows.epochs,
            {**self.identity, "earlier": state["earlier"]},
        )
        self._position.replan(self.identity, self.epochs)

    @classmethod
    def _open_windows(cls, lake: str, options: Mapping[str, Any], settings: State) -> TableWindows:
        kept = {
            name: each for name, each in options.items() if name not in ("shard", "repeat", "view")
        }
        return cls(lake, **saved_options(settings, kept)).newest

    @property
    def newest(self) -> TableWindows:
        """The windows of the newest plan."""
        return self.windows if isinstance(self.windows, TableWindows) else self.windows.newest

    @property
    def _plan(self) -> EpochPlan:
        return self.windows.of(self.epoch).epochs.plan(self.epoch)

    @property
    def version(self) -> int:
        """The pinned version of the table in the present epoch; later commits do not change it."""
        return self.windows.of(self.epoch).index.version

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the table, or of an epoch of the view."""
        return self.windows.of(self.epoch).index.num_tokens

    @property
    def dropped_tokens(self) -> int:
        """The number of tokens of an epoch that are in no window; each epoch drops different ones."""
        return self._plan.dropped_tokens

    @property
    def padding(self) -> float:
        """The share of an epoch's tokens that are padding, with ``Format(pack="best_fit")``; otherwise 0."""
        return self._plan.padding if isinstance(self._plan, UnitPlan) else 0.0

    def tables(self) -> list[tuple[str, int]]:
        """Return the URL of the table, with each version that is read from the present epoch on."""
        return [(self.where, version) for version in self.windows.versions(self.epoch)]

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the view reads."""
        return self.newest.view.folders

    def tokenizer(self) -> TokenizerRecord | None:
        """Return the tokenizer recorded in the table's lineage, if any; reads the history."""
        return next(iter(self.tokenizers()), None)

    def tokenizers(self) -> list[TokenizerRecord]:
        """Return the distinct tokenizers in the table's lineage, newest first; reads the history."""
        return read_tokenizers(self.newest.index)

    def reader(
        self, epoch: int, batch_format: Format | None = None, *, world_size: int = 1
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, in the dataset's own format or another.

        ``world_size`` ranks divide the lanes, and so the memory for reading ahead.
        """
        return self.windows.reader(epoch, batch_format, world_size=world_size)

    def locate(self, sample: int, *, epoch: int | None = None) -> list[find_documents.DocumentSpan]:
        """Return the documents behind a sample of an epoch, by default the current one.

        ``step_samples`` returns the samples of a batch. Raises LoaderError if the sample is out of range.
        """
        epoch = self.epoch if epoch is None else epoch
        self.epochs.of(epoch).check(sample, where=self.where)
        return self.locator(epoch).locate(sample)

    def locator(self, epoch: int) -> find_documents.Locator:
        """Return what finds the documents of many samples of an epoch faster than ``locate``."""
        return self.windows.locator(epoch)

    def evenness(
        self, *, batch_size: int, epoch: int | None = None, max_batches: int = 64
    ) -> Evenness:
        """Return how evenly the batches of an epoch, by default the current one, mix the input files.

        A batch has ``batch_size`` samples over all ranks; ``max_batches`` batches are measured.
        """
        epoch = self.epoch if epoch is None else epoch
        windows = self.windows.of(epoch)
        return measure_evenness(
            windows.index,
            windows.epochs.plan(epoch),
            epoch=epoch,
            batch_size=batch_size,
            max_batches=max_batches,
            is_padded=self.format.is_padded,
        )

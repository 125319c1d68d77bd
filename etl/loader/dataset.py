"""TokenDataset: one version of a lake's tokens as a torch dataset, sharded and resumable.

Each window is a sample of an epoch exactly once; its place in the order, ``plan.py``, depends on neither
ranks, workers nor batch size. Rank r of R takes the samples r, r + R, r + 2R ..., so that the batches of
one step, over all ranks, are the next samples of that order. What does not fill a step of R samples at
the end of an epoch is left out, and ``dropped_samples`` says how many.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader import locate
from etl.loader.gather import Batch, Gatherer
from etl.loader.index import read_index, read_tokenizer
from etl.loader.plan import Plan, Shuffle
from etl.loader.shard import resolve_shard
from schemas import TokenizerRecord

_STATE_FORMAT = 1
State = dict[str, int | str]


class TokenDataset(IterableDataset[Batch]):
    """Packed windows of ``seq_len`` tokens with the labels shifted by one, in a reproducible order.

    ``lake`` is the URL of a lake or of its table ``tokens``; the newest version is pinned when none is
    given (``dataset.version``). ``shuffle`` is True, False (the table's own order), or the settings.
    ``boundaries`` adds ``document_ids`` and ``position_ids``. Opening reads the log and the footers.

    One pass is one epoch; ``set_epoch`` gives the next its own order. A plain ``DataLoader(dataset,
    batch_size=8)`` works (each sample once whatever its workers); batches in the order of the plan, and
    quicker, come from ``dataset.batches(8)``, by itself or as ``DataLoader(dataset.batches(8),
    batch_size=None, num_workers=2)``.

    Raises LoaderError if there is no such table, or it has fewer than seq_len + 1 tokens.
    """

    def __init__(  # noqa: PLR0913 - the one call of a training script
        self,
        lake: str,
        *,
        seq_len: int,
        version: int | None = None,
        seed: int = 0,
        shuffle: bool | Shuffle = True,
        rank: int | None = None,
        world_size: int | None = None,
        boundaries: bool = False,
    ) -> None:
        self.seq_len = seq_len
        self.rank, self.world_size = resolve_shard(rank, world_size)
        self._boundaries = boundaries
        self._index = read_index(lake, version=version)
        settings = (Shuffle() if shuffle else None) if isinstance(shuffle, bool) else shuffle
        self._plan = Plan(self._index.group_tokens, seq_len, seed, settings)
        self._fingerprint = self._plan.fingerprint(self._index.digest())
        # Epoch and first sample; in shared memory, so that persistent workers see set_epoch.
        self._begin: torch.Tensor = torch.zeros(2, dtype=torch.int64)
        self._begin.share_memory_()  # type: ignore[no-untyped-call]
        self._consumed = 0

    @property
    def version(self) -> int:
        """The version of the table that is read, whatever is committed meanwhile."""
        return self._index.version

    @property
    def epoch(self) -> int:
        """The epoch that iterating goes through."""
        return int(self._begin[0])

    @property
    def num_tokens(self) -> int:
        """Tokens of the table."""
        return self._plan.num_tokens

    @property
    def num_samples(self) -> int:
        """Windows of the table: the samples of an epoch, over all ranks."""
        return self._plan.num_samples

    @property
    def dropped_tokens(self) -> int:
        """Tokens of an epoch that are in no window, other ones in each epoch."""
        return self._plan.dropped_tokens

    @property
    def dropped_samples(self) -> int:
        """Samples at the end of a whole epoch that no rank gets, so that all take the same steps."""
        return self.num_samples % self.world_size

    def tokenizer(self) -> TokenizerRecord | None:
        """The tokenizer that made the ids, as the table's lineage names it; reads the history."""
        return read_tokenizer(self._index)

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch."""
        return self.num_samples // self.world_size

    def __iter__(self) -> Iterator[Batch]:
        """The samples of this rank, each a dictionary of (seq_len,) tensors."""
        for batch in self.iterate(1, drop_last=False):
            yield {name: values[0] for name, values in batch.items()}

    def batches(self, batch_size: int, *, drop_last: bool = True) -> "Batches":
        """The samples of this rank as batches of (batch_size, seq_len) tensors, an iterable of its own.

        Raises LoaderError if the batch size is not positive.
        """
        return Batches(self, batch_size, drop_last=drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Go through another epoch, from its beginning; the same one again changes nothing."""
        if epoch < 0:
            raise LoaderError(f"epoch {epoch}", hint="epochs count from 0")
        if epoch != self.epoch:
            self._start_at(epoch, 0)

    def state_dict(self, *, consumed: int | None = None) -> State:
        """Where this epoch stands: a few integers, the same on all ranks after the same step.

        ``consumed`` counts the samples of the epoch that all ranks together have got. In this process
        the dataset counts them itself, up to the batch handed out last. DataLoader workers go ahead of
        the training loop, which alone knows: give ``steps * batch_size * world_size``.
        """
        return {
            "format": _STATE_FORMAT,
            "plan": self._fingerprint,
            "version": self.version,
            "seq_len": self.seq_len,
            "seed": self._plan.seed,
            "epoch": self.epoch,
            "consumed": self._consumed if consumed is None else consumed,
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where a state was saved, at any world size, batch size and number of workers.

        Call it before a DataLoader is iterated. Raises LoaderError if it is the state of another plan.
        """
        own = self.state_dict()
        if state.get("format") != own["format"]:
            raise LoaderError(
                f"a state of format {state.get('format')}, not {own['format']}",
                hint="load it with the version of Tokenlake that saved it",
            )
        if state["plan"] != own["plan"]:
            names = ("version", "seq_len", "seed")
            changed = [f"{n}={state[n]} here {own[n]}" for n in names if state[n] != own[n]]
            raise LoaderError(
                f"the state of another order of samples ({', '.join(changed) or 'table or shuffle'})",
                where=self._index.url,
                hint=f"open the dataset with version={state['version']}, seq_len={state['seq_len']}, "
                f"seed={state['seed']} and the shuffle settings of then",
            )
        self._start_at(int(state["epoch"]), int(state["consumed"]))

    def locate(self, sample: int, *, epoch: int | None = None) -> list[locate.Part]:
        """The documents behind a sample of an epoch (this one if not given), by its place in the order.

        Row b of the batch at step s (from 0) of rank r is the sample ``(s * batch_size + b) *
        world_size + r``. Raises LoaderError if there is no such sample.
        """
        if not 0 <= sample < self.num_samples:
            raise LoaderError(f"sample {sample} of {self.num_samples}", where=self._index.url)
        epoch = self.epoch if epoch is None else epoch
        window = self._plan.window(epoch, sample)
        return locate.locate(self._index, self._plan, self._plan.stream(epoch), window=window)

    def _start_at(self, epoch: int, consumed: int) -> None:
        self._begin[0], self._begin[1] = epoch, consumed
        self._consumed = consumed

    def iterate(self, batch_size: int, *, drop_last: bool) -> Iterator[Batch]:
        """What ``batches`` goes through; inside a DataLoader worker, of W, every W-th batch."""
        worker: Any = get_worker_info()
        first, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        epoch, begin = (int(value) for value in self._begin)
        stream = self._plan.stream(epoch)
        count = max(self.num_samples - begin, 0) // self.world_size
        steps = count // batch_size if drop_last else -(-count // batch_size)
        with Gatherer(
            self._index, self._plan, stream, epoch=epoch, boundaries=self._boundaries
        ) as gatherer:
            for step in range(first, steps, workers):
                start, stop = step * batch_size, min((step + 1) * batch_size, count)
                samples = range(begin + start * self.world_size, begin + stop * self.world_size)
                batch = gatherer.batch(samples[self.rank :: self.world_size])
                if worker is None:
                    self._consumed = samples.stop
                yield batch


class Batches(IterableDataset[Batch]):
    """The batches of a dataset: iterate it, or hand it to ``DataLoader(..., batch_size=None)``."""

    def __init__(self, dataset: TokenDataset, batch_size: int, *, drop_last: bool) -> None:
        if batch_size < 1:
            raise LoaderError(f"batch_size={batch_size}", hint="give 1 or more")
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[Batch]:
        return self.dataset.iterate(self.batch_size, drop_last=self.drop_last)

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (0 if self.drop_last or not rest else 1)

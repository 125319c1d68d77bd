"""Turn the prefixes of a view in batches into ordinary tokens without a loss, or remove them.

In the stream of tokens, a prefix has negative numbers, -1 - id, so that windows carry the mark with them.

Shape suffixes: B rows of a batch, S tokens of a window.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Self

import numpy as np
import torch

from etl.loader.batches.document_boundaries import IGNORED, Batch, Format
from etl.loader.one_pass import Reader


class PrefixReader:
    """A reader of batches with prefixes.

    ``has_prefixes`` says of a sample whether it keeps them, and ``ends_at_start`` whether a document begins
    with the last label of its window.
    """

    def __init__(
        self,
        open_reader: Callable[[Format], AbstractContextManager[Reader]],
        wanted: Format,
        has_prefixes: Callable[[int], bool],
        ends_at_start: Callable[[int], bool],
    ) -> None:
        self._wanted = wanted
        self._has_prefixes = has_prefixes
        self._ends_at_start = ends_at_start
        self._stack = ExitStack()
        # Boundaries are added after prefixes were removed; positions say where documents begin.
        marked = Format(position_ids=wanted.needs_boundaries)
        self._context = open_reader(wanted if wanted.pad_id is not None else marked)

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as one batch in the wanted format."""
        batch = self._reader.batch(samples)
        removed = [row for row, sample in enumerate(samples) if not self._has_prefixes(sample)]
        if self._wanted.pad_id is None:
            return self._packed(batch, samples, removed)
        return self._padded(batch, removed, self._wanted.pad_id)

    def _packed(self, batch: Batch, samples: Sequence[int], removed: Sequence[int]) -> Batch:
        inputs, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
        windows = np.concatenate([inputs, labels[:, -1:]], axis=1)  # (B, S + 1)
        is_start = np.zeros(windows.shape, bool)
        if self._wanted.needs_boundaries:
            is_start[:, 1:-1] = batch["position_ids"].numpy()[:, 1:] == 0
            is_start[:, -1] = [self._ends_at_start(sample) for sample in samples]
        ignored = windows < 0
        windows[ignored] = ~windows[ignored]
        for row in removed:
            _remove(windows[row], ignored[row], is_start[row])
        wanted = slice(1, None) if self._wanted.shifted_labels else slice(None, -1)
        labels = np.where(ignored[:, wanted], IGNORED, windows[:, wanted])
        batch = {
            "input_ids": torch.from_numpy(windows[:, :-1].copy()),
            "labels": torch.from_numpy(labels),
        }
        return (
            self._wanted.add_boundaries(batch, is_start) if self._wanted.needs_boundaries else batch
        )

    def _padded(self, batch: Batch, removed: Sequence[int], pad_id: int) -> Batch:
        inputs, labels, mask = (
            batch[name].numpy() for name in ("input_ids", "labels", "attention_mask")
        )
        is_prefix = inputs < 0
        inputs[is_prefix] = ~inputs[is_prefix]
        labels[labels < 0] = IGNORED
        for row in removed:
            size = int(is_prefix[row].sum())
            for values, rest in ((inputs, pad_id), (labels, IGNORED), (mask, 0)):
                values[row, : len(values[row]) - size] = values[row, size:].copy()
                values[row, len(values[row]) - size :] = rest
            batch["num_tokens"][row] -= size
        return batch

    def __enter__(self) -> Self:
        self._reader = self._stack.enter_context(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _remove(window: np.ndarray, is_prefix: np.ndarray, is_start: np.ndarray) -> None:
    """Remove prefixes from a window of S + 1 tokens, and fill up its end, which becomes a document.

    ``is_prefix`` then marks the tokens that were added.
    """
    kept = np.flatnonzero(~is_prefix)
    if len(kept) == len(window):
        return
    documents = np.cumsum(is_start)[kept]
    window[: len(kept)], window[len(kept) :] = window[kept], 0
    is_prefix[: len(kept)], is_prefix[len(kept) :] = False, True
    is_start[:] = False
    is_start[: len(kept)] = np.diff(documents, prepend=0) != 0
    is_start[len(kept)] = True

"""`Format`: document boundaries of packed windows, whole documents in them, or one padded document per row.

Shape suffixes: B rows of a batch, S tokens of a window, D documents that begin in a batch.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from etl.errors import LoaderError

Batch = dict[str, Any]
"""Tensors by name; lengths for Hugging Face models are int."""


class PositionedBatch(NamedTuple):
    """A batch or a row, with the position of the pass after it."""

    position: int  # the sample of the epoch after it
    is_whole: bool  # a step is complete with it
    is_last: bool  # of this reader
    batch: Batch


_HUGGINGFACE_NAMES = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
PER_BATCH = ("cu_seqlens", "max_seqlen", *_HUGGINGFACE_NAMES)
"""Values of a batch without a row dimension."""

IGNORED = -100
"""The label that torch's cross_entropy ignores by default (its ``ignore_index``)."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """The tensors of a batch besides ``input_ids`` and ``labels``, both int64 (B, S).

    A packed window is S tokens of consecutive documents; its first token may lie anywhere in a document.
    These options mark the documents:

    - ``document_ids``: int64 (B, S), counted from 0 in each row, for a block-causal attention mask.
    - ``position_ids``: int64 (B, S), restarting at 0 with each document.
    - ``cu_seqlens``: int32 (D + 1,), the document starts in the batch flattened to B * S tokens, and its
      end, as variable-length attention takes them; also ``max_seqlen``, int64 (), the greatest length, which
      stays on the CPU. Each row starts a new document. Rows cannot be stacked: use ``dataset.batches()``.
    - ``ignore_boundaries``: labels that belong to the next document are -100.

    ``sample_numbers`` adds ``sample``, int64 (B,): the number of each row's sample, counted over all epochs
    (``dataset.epochs.of(epoch).first_sample + sample``). ``LossLog`` needs it.

    ``shifted_labels=False`` leaves the shift by one to the model: the label of a token is the token itself.
    Models of the library transformers shift the labels: use ``Format.huggingface()``, which also sets
    ``names="huggingface"``. Instead of ``cu_seqlens`` and ``max_seqlen``, batches then have
    ``cu_seq_lens_q``, ``cu_seq_lens_k``, ``max_length_q`` and ``max_length_k`` (int).

    ``pack="best_fit"`` packs whole documents: a document of at most S tokens is never cut, a longer one
    becomes windows of S tokens and one rest. The rest of a window is padded with ``pad_id`` (default: 0).
    Each token is in ``input_ids`` exactly once in an epoch, and each but the first of a document exactly once
    the label of the one before it, if labels are shifted. Labels of the next document and of the padding are
    always -100. For the options above, each part of a document begins a new one, and so does the padding.

    ``pad_id`` alone puts one document in each row, truncated at S + 1 tokens and padded with that id. Labels
    in the padding are -100, ``attention_mask`` int64 (B, S) is 1 for tokens of the document, and
    ``num_tokens`` int64 (B,) is its length before truncation. Documents without tokens are skipped.

    Raises LoaderError if ``pad_id`` without ``pack`` is combined with an option for packed windows.

    >>> Format(position_ids=True).needs_boundaries
    True
    """

    document_ids: bool = False
    position_ids: bool = False
    cu_seqlens: bool = False
    ignore_boundaries: bool = False
    pack: Literal["best_fit"] | None = None
    pad_id: int | None = None
    sample_numbers: bool = False
    shifted_labels: bool = True
    names: Literal["torch", "huggingface"] = "torch"

    @staticmethod
    def huggingface(
        *,
        boundaries: bool = True,
        pack: Literal["best_fit"] | None = None,
        pad_id: int | None = None,
        sample_numbers: bool = False,
    ) -> "Format":
        """Return the format of the causal language models of the library transformers.

        Such models shift the labels themselves. With ``boundaries``, no token attends to or predicts another
        document: batches have ``position_ids``, and the lengths for flash attention. A batch of B windows
        of S tokens is passed to the model as it is, without ``attention_mask``. Other implementations of
        attention see the documents in ``position_ids``, but only with ``use_cache=False`` in the model's
        configuration.

        The model learns S - 1 tokens of each window, since the label of the last one is not in it.

        >>> Format.huggingface().shifted_labels, Format.huggingface(pad_id=0).cu_seqlens
        (False, False)
        """
        packed = boundaries and (pad_id is None or pack is not None)
        return Format(
            position_ids=packed,
            cu_seqlens=packed,
            ignore_boundaries=packed,
            pack=pack,
            pad_id=pad_id,
            sample_numbers=sample_numbers,
            shifted_labels=False,
            names="huggingface",
        )

    def __post_init__(self) -> None:
        if self.pack not in (None, "best_fit"):
            raise LoaderError(
                f"Format has pack={self.pack!r}, but the only way to pack documents is 'best_fit'",
                hint="leave pack out for windows that cut documents",
            )
        if self.is_padded and self.needs_boundaries:
            raise LoaderError(
                f"Format has pad_id={self.pad_id} together with options for packed windows",
                hint="a padded row holds one document: set only pad_id",
            )

    @property
    def is_padded(self) -> bool:
        """Whether each row is one document."""
        return self.pad_id is not None and self.pack is None

    @property
    def needs_boundaries(self) -> bool:
        """Whether an option needs the document starts."""
        return any((self.document_ids, self.position_ids, self.cu_seqlens, self.ignore_boundaries))

    def add_boundaries(self, batch: Batch, is_start: np.ndarray) -> Batch:
        """Add the requested tensors to a packed batch; ``is_start`` (B, S + 1) bool: document starts.

        Only the few starts are computed with; the values between them are repeated.
        """
        num_rows, size = is_start.shape[0], is_start.shape[1] - 1
        rows, columns = np.divmod(np.flatnonzero(is_start), size + 1)
        if self.ignore_boundaries:
            shift = int(self.shifted_labels)
            is_label = (columns >= shift) & (columns < size + shift)
            batch["labels"].numpy()[rows[is_label], columns[is_label] - shift] = IGNORED
        # A window begins inside document 0, or with it.
        inner = (columns > 0) & (columns < size)
        row_starts = np.arange(num_rows + 1) * size
        bounds = np.sort(np.append(rows[inner] * size + columns[inner], row_starts))
        return batch | self._describe(bounds, row_starts)

    def _describe(self, bounds: np.ndarray, row_starts: np.ndarray) -> Batch:
        """Return the requested tensors but for labels.

        ``bounds`` (D + 1,) int64 are the starts of documents in the flattened batch and its end,
        ``row_starts`` (B + 1,) int64 the starts of its rows and its end.
        """
        starts, lengths = bounds[:-1], np.diff(bounds)
        shape = (len(row_starts) - 1, int(row_starts[1]))
        batch: Batch = {}
        if self.document_ids:
            firsts = np.searchsorted(starts, row_starts)  # the first document of each row
            numbers = np.arange(len(starts)) - np.repeat(firsts[:-1], np.diff(firsts))
            batch["document_ids"] = torch.from_numpy(np.repeat(numbers, lengths).reshape(shape))
        if self.position_ids:
            positions = np.arange(bounds[-1]) - np.repeat(starts, lengths)
            batch["position_ids"] = torch.from_numpy(positions.reshape(shape))
        return batch | self.measure_lengths(bounds) if self.cu_seqlens else batch

    def measure_lengths(self, bounds: np.ndarray) -> Batch:
        """Return the document lengths by their names; ``bounds`` as in ``cu_seqlens``, (D + 1,) int64."""
        ends, longest = torch.from_numpy(bounds.astype(np.int32)), int(np.diff(bounds).max())
        if self.names == "huggingface":
            return dict(zip(_HUGGINGFACE_NAMES, (ends, ends, longest, longest), strict=True))
        return {"cu_seqlens": ends, "max_seqlen": torch.tensor(longest)}


def pad_documents(
    documents: list[np.ndarray], *, seq_len: int, pad_id: int, shifted_labels: bool = True
) -> Batch:
    """Return documents, each (n,) int32 with n >= 1, as the rows of a padded batch.

    >>> batch = pad_documents([np.array([7, 8, 9], np.int32)], seq_len=4, pad_id=0)
    >>> batch["input_ids"].tolist(), batch["labels"].tolist()
    ([[7, 8, 9, 0]], [[8, 9, -100, -100]])
    """
    shape = (len(documents), seq_len)
    input_ids, labels = np.full(shape, pad_id, np.int64), np.full(shape, IGNORED, np.int64)
    mask = np.zeros(shape, np.int64)
    for row, tokens in enumerate(documents):
        size = min(len(tokens), seq_len)
        input_ids[row, :size] = tokens[:size]
        if shifted_labels:
            labels[row, : len(tokens) - 1] = tokens[1 : seq_len + 1]
        else:
            labels[row, :size] = tokens[:size]
        mask[row, :size] = 1
    return {
        "input_ids": torch.from_numpy(input_ids),
        "labels": torch.from_numpy(labels),
        "attention_mask": torch.from_numpy(mask),
        "num_tokens": torch.tensor([len(tokens) for tokens in documents], dtype=torch.int64),
    }

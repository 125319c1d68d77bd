"""`LossLog`: write the losses of documents to files while training, for the table `losses`.

Each rank writes its own files and reads nothing, so that ranks never wait for each other. A batch carries the
numbers of its samples and marks its documents; the losses of each stretch of tokens of one document are
added up. Which documents these are is found when `etl losses` commits the files.

A row of a file is one such stretch. Files are complete when they appear; a rank that is killed loses the rows
that it had not written. The rows of a sample that is trained on again after a resume are recognized by its
number.
"""

import json
import re
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import torch

from etl import storage
from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import IGNORED, Format
from etl.loader.dataset import TokenDataset
from etl.loader.mixture import TokenMixture
from etl.loader.ranks import process_rank
from etl.parquet.parquet_file import parquet_writer

FOLDER: Final = "loss_logs"
"""The folder of a lake in which trainings write their losses."""

FILE_FORMAT: Final = 1
"""The version of the files."""

METADATA: Final = b"tokenlake"
"""The key of the metadata of a file: JSON with the run, the dataset and the time of writing."""

SCHEMA: Final = pa.schema(
    [
        pa.field("sample", pa.int64(), nullable=False),  # counted over all epochs
        pa.field("start", pa.int32(), nullable=False),  # offset of the first token in the window
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("loss", pa.float64(), nullable=False),  # sum over the tokens
        pa.field("step", pa.int64(), nullable=False),
        pa.field("call", pa.int64(), nullable=False),  # of ``write``; a later one replaces a sample
    ]
)
"""The columns of a file; ``start`` is the first token of a stretch with a loss."""

_DTYPES: Final = {pa.int64(): np.int64, pa.int32(): np.int32, pa.float64(): np.float64}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MARKS = ("document_ids", "position_ids", "cu_seqlens", "cu_seq_lens_q")
_USED = ("labels", "sample", *_MARKS)


@dataclass(frozen=True)
class _Step:
    """The tensors of a step, whose copies to the CPU may not have ended."""

    step: int
    losses: torch.Tensor
    batch: Mapping[str, torch.Tensor]
    copied: list[Any]  # events of the GPUs

    @staticmethod
    def of(step: int, losses: torch.Tensor, batch: Mapping[str, Any]) -> "_Step":
        """Copy the tensors, those on a GPU while it continues: the caller may reuse their memory."""
        used = {name: batch[name] for name in _USED if name in batch}
        devices = {each.device for each in (losses, *used.values()) if each.device.type == "cuda"}

        def copy(values: torch.Tensor) -> torch.Tensor:
            return values.detach().to("cpu", non_blocking=bool(devices), copy=True)

        copies = {name: copy(values) for name, values in used.items()}
        losses = copy(losses.detach().float())
        copied = [torch.cuda.current_stream(device).record_event() for device in devices]
        return _Step(step, losses, copies, copied)


class LossLog:
    """Writes the losses of one rank's batches to files; each rank opens its own.

    - ``dataset``: the dataset that the batches are of, with ``Format(sample_numbers=True)`` and, unless each
      row is one document, one of ``document_ids``, ``position_ids`` and ``cu_seqlens``.
    - ``run``: the name of the training run. A run that is resumed keeps its name; another order of samples or
      another model is another run.
    - ``folder``: where files are written, by default in the lake of the dataset. A mixture needs a folder.
    - ``rows_per_file``: how many rows a file has. A rank that is killed loses at most as many.

    Call ``flush`` whenever a checkpoint is saved: the samples before it are not trained on again. Leaving a
    ``with`` block also writes all rows.

    Raises LoaderError if the name of the run is not valid, or if batches lack what is needed.
    """

    def __init__(
        self,
        dataset: TokenDataset | TokenMixture,
        *,
        run: str,
        folder: str | None = None,
        rows_per_file: int = 1 << 16,
    ) -> None:
        _check_format(dataset.format, dataset.where)
        if not _NAME.fullmatch(run):
            raise LoaderError(
                f"{run!r} is not a valid name of a run",
                hint="use up to 100 letters, digits, '.', '-' and '_', and begin with a letter or digit",
            )
        if rows_per_file < 1:
            raise LoaderError(f"rows_per_file must be at least 1, not {rows_per_file}")
        tables = dataset.tables()
        state = dataset.state_dict(consumed=0)
        state.pop("read", None)  # the batches have the numbers of their samples
        if folder is None:
            if len(tables) > 1:
                raise LoaderError(
                    "a mixture has several lakes",
                    where=dataset.where,
                    hint="pass folder=..., and the same folder to `etl losses --from`",
                )
            folder = storage.join(tables[0][0].rpartition("/")[0], FOLDER)
        self.run = run
        self.folder = storage.join(storage.normalize(folder), run)
        self._format = dataset.format
        self._metadata = {
            "format": FILE_FORMAT,
            "run": run,
            "state": state,
            "tables": [url.rpartition("/")[2] for url, _ in tables],
        }
        self._rows_per_file = rows_per_file
        self._prefix = f"{process_rank():06d}-{uuid.uuid4().hex[:12]}"
        self._num_files = 0
        self._calls = 0
        self._last: _Step | None = None
        self._rows: list[dict[str, np.ndarray]] = []
        self._num_rows = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="losses")
        self._written: list[Future[None]] = []

    def write(self, step: int, batch: Mapping[str, Any], losses: torch.Tensor) -> None:
        """Add the losses of a batch at a step of the training.

        ``losses`` has the loss of each label, as ``cross_entropy(..., reduction="none")`` returns them:
        (B, S), or (B, S - 1) for labels that are not shifted, without the first. Tensors on a GPU are copied
        while the next step runs. Raises LoaderError if the shape is another, and StorageError if an earlier
        file could not be written.
        """
        shape = tuple(batch["labels"].shape)
        allowed = [shape] if self._format.shifted_labels else [shape, (shape[0], shape[1] - 1)]
        if tuple(losses.shape) not in allowed or "sample" not in batch:
            what = f"losses of the shape {tuple(losses.shape)} for labels of the shape {shape}"
            if "sample" not in batch:
                what = "the batch has no tensor 'sample'"
            raise LoaderError(
                what,
                where="LossLog.write",
                hint='pass the batch of the dataset, and cross_entropy(..., reduction="none") in its shape',
            )
        self._count_last()
        self._last = _Step.of(step, losses, batch)
        if self._num_rows >= self._rows_per_file:
            self._start_file()
        self._raise_errors(wait=False)

    def flush(self) -> None:
        """Write all rows, and return when their files are complete; raises StorageError if one is not."""
        self._count_last()
        self._start_file()
        self._raise_errors(wait=True)

    def close(self) -> None:
        """Write all rows, and end."""
        self.flush()
        self._writer.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _count_last(self) -> None:
        """Count the losses of the last batch, whose copies have ended while the step after it ran."""
        last, self._last = self._last, None
        if last is None:
            return
        for event in last.copied:
            event.synchronize()
        batch = {name: values.numpy() for name, values in last.batch.items()}
        rows = sum_losses(batch, last.losses.numpy(), shifted=self._format.shifted_labels)
        size = len(rows["sample"])
        rows |= {"step": np.full(size, last.step), "call": np.full(size, self._calls)}
        self._calls += 1
        self._rows.append(rows)
        self._num_rows += size

    def _start_file(self) -> None:
        """Let the thread write the rows to a file."""
        if not self._num_rows:
            return
        columns = {
            name: np.concatenate([rows[name] for rows in self._rows]) for name in SCHEMA.names
        }
        uri = storage.join(self.folder, f"{self._prefix}-{self._num_files:06d}.parquet")
        metadata = {**self._metadata, "written": time.time_ns()}
        self._written.append(self._writer.submit(_write_file, uri, columns, metadata))
        self._num_files, self._num_rows, self._rows = self._num_files + 1, 0, []

    def _raise_errors(self, *, wait: bool) -> None:
        """Raise the error of a file that could not be written; wait for all files if ``wait`` is set."""
        for future in [f for f in self._written if wait or f.done()]:
            self._written.remove(future)
            future.result()


def sum_losses(
    batch: Mapping[str, np.ndarray], losses: np.ndarray, *, shifted: bool
) -> dict[str, np.ndarray]:
    """Return the sample, start, number of tokens and sum of losses of each stretch of one document.

    Ignored labels do not count. Labels that are shifted by one are tokens of the window from 1 to S. Whether
    token S begins a document is not known, so that it is a separate stretch.

    >>> batch = {"labels": np.array([[5, 6, 7, 8]]), "sample": np.array([9])}
    >>> batch["document_ids"] = np.array([[0, 0, 1, 1]])
    >>> rows = sum_losses(batch, np.array([[1.0, 2.0, 4.0, 8.0]]), shifted=True)
    >>> rows["start"].tolist(), rows["num_tokens"].tolist(), rows["loss"].tolist()
    ([1, 2, 4], [1, 2, 1], [1.0, 6.0, 8.0])
    """
    labels = batch["labels"]
    num_rows, size = labels.shape
    if losses.shape[1] < size:  # without the first label
        losses = np.concatenate([np.zeros((num_rows, 1), losses.dtype), losses], axis=1)
        labels = labels.copy()
        labels[:, 0] = IGNORED
    is_start = _starts(batch, (num_rows, size))
    if shifted:
        begins = np.zeros(is_start.shape, bool)
        begins[:, :-1] = is_start[:, 1:]
        begins[:, -1] = any(name in batch for name in _MARKS)
    else:
        begins = is_start
    begins[:, 0] = True
    firsts = np.flatnonzero(begins)
    is_label = labels != IGNORED
    counts = np.add.reduceat(is_label.ravel(), firsts, dtype=np.int64)
    sums = np.add.reduceat(np.where(is_label, losses, 0).ravel(), firsts, dtype=np.float64)
    used = np.flatnonzero(counts)
    places = np.where(is_label.ravel(), np.arange(is_label.size), is_label.size)
    row, column = np.divmod(np.minimum.reduceat(places, firsts)[used], size)
    return {
        "sample": batch["sample"][row],
        "start": column + int(shifted),
        "num_tokens": counts[used],
        "loss": sums[used],
    }


def _starts(batch: Mapping[str, np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Return which tokens of a batch begin a document after the first of their row, (B, S) bool."""
    is_start = np.zeros(shape, bool)
    if "document_ids" in batch:
        is_start[:, 1:] = np.diff(batch["document_ids"], axis=1) != 0
    elif "position_ids" in batch:
        is_start[:] = batch["position_ids"] == 0
    else:
        for name in ("cu_seqlens", "cu_seq_lens_q"):
            if name in batch:
                is_start.ravel()[batch[name][:-1]] = True
    return is_start


def _check_format(batch_format: Format, where: str) -> None:
    """Raise LoaderError unless batches have the numbers of samples, and mark documents."""
    marks = (batch_format.document_ids, batch_format.position_ids, batch_format.cu_seqlens)
    if batch_format.sample_numbers and (any(marks) or batch_format.pad_id is not None):
        return
    raise LoaderError(
        "the batches do not say which samples and documents they are of",
        where=where,
        hint="open the dataset with Format(sample_numbers=True, document_ids=True)",
    )


def _write_file(uri: str, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    # From buffers: pa.array imports pandas, 40 MB.
    arrays = [
        pa.Array.from_buffers(
            field.type,
            len(columns[field.name]),
            [None, pa.py_buffer(columns[field.name].astype(_DTYPES[field.type]).tobytes())],
        )
        for field in SCHEMA
    ]
    schema = SCHEMA.with_metadata({METADATA: json.dumps(metadata).encode()})
    table = pa.Table.from_arrays(arrays, schema=schema)
    with storage.open_atomic_output(uri) as file, parquet_writer(file, schema) as writer:
        writer.write_table(table)

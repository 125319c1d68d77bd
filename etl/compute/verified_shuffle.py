"""Shuffle a frame with Dask, and verify that each partition gets exactly the rows that belong to it.

Dask's shuffle sends rows outside of its tasks, from worker to worker, and may lose some if a worker restarts
or does not respond. So each task that sends rows counts them by partition, and adds up the hashes of whole
rows. The barrier of the shuffle, which waits for all of these tasks, adds up what they return. The task that
reads a partition compares it with these sums before any other uses it. ``etl.compute.compute_frames`` starts
a failed shuffle again.

Dask sorts and copies the rows of a frame several times on their way. It is given few: for each partition one
row, whose value has the bytes of all rows that are sent to it.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask._task_spec import GraphNode, Task, TaskRef, convert_legacy_graph
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import PartitionsFiltered
from dask.typing import Key
from dask.utils import key_split
from distributed.shuffle._core import P2PBarrierTask, ShuffleId, barrier_key, p2p_barrier
from distributed.shuffle._shuffle import DataFrameShuffleSpec, shuffle_transfer, shuffle_unpack
from numpy.typing import NDArray

from etl.compute.row_checksums import sum_rows
from etl.errors import ShuffleError

Place = Callable[[pd.DataFrame], NDArray[np.int64]]
"""A function that returns the number of the partition of each row."""

_PACKED: Final = pd.DataFrame(
    {"partition": pd.Series(dtype="int64"), "rows": pd.Series(dtype="object")}
)
"""The rows of a frame that are sent to a partition, one after another: the bytes of the values of each."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a shuffle; the names of its tasks depend on it, so that no other's are used."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex)


def shuffle_verified(frame: dd.DataFrame, place: Place, partitions: int) -> dd.DataFrame:
    """Return the rows of a frame of numbers in the partitions that ``place`` gives them.

    A task that would use a partition with other rows raises ShuffleError instead.
    """
    if partitions == 1:
        return frame.repartition(npartitions=1)
    return new_collection(P2PVerified(frame.expr, place, partitions, Attempt()))


def start_again(frame: dd.DataFrame) -> dd.DataFrame:
    """Return a frame with another attempt at each of its shuffles."""
    expression: Any = frame.expr
    operands = (operand for node in expression.walk() for operand in node.operands)
    for attempt in {operand for operand in operands if isinstance(operand, Attempt)}:
        expression = expression.substitute(attempt, Attempt())
    return new_collection(expression)


class P2PVerified(PartitionsFiltered):
    """Dask's shuffle between workers, with tasks that add up what they send and check what they read.

    Dask's own expression takes a column, and its tasks return nothing but a number.
    """

    _parameters = ["frame", "place", "num_partitions", "attempt", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012 - both as in Dask

    @cached_property
    def _meta(self) -> pd.DataFrame:
        return self.frame._meta

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.num_partitions + 1)

    def _layer(self) -> dict[Key, GraphNode]:
        name: str = self._name
        shuffle = ShuffleId(name.rpartition("-")[2])
        of_frame, _ = self.frame.__dask_keys__()[0]
        sending = f"{key_split(of_frame)}-p2p.send-{shuffle}"
        row_type = np.dtype([*self._meta.dtypes.items()])
        settings = (self.place, self.num_partitions, shuffle, row_type)
        sent = [
            Task((sending, i), _send, TaskRef((of_frame, i)), i, *settings)
            for i in range(self.frame.npartitions)
        ]
        spec = DataFrameShuffleSpec(
            id=shuffle,
            disk=True,
            npartitions=self.num_partitions,
            column="partition",
            meta=_PACKED,
            parts_out=tuple(self._partitions),
            drop_column=True,
        )
        refs = (task.ref() for task in sent)
        barrier = P2PBarrierTask(barrier_key(shuffle), _finish, shuffle, *refs, spec=spec)
        reads = [
            Task((name, i), _read, shuffle, partition, barrier.ref(), row_type)
            for i, partition in enumerate(self._partitions)
        ]
        return {task.key: task for task in (*sent, barrier, *reads)}


class _Sent(NamedTuple):
    """What was sent: the number of the shuffle's run, the rows of each partition, and their hashes' sums."""

    run: int
    sums: NDArray[np.int64]  # (partitions, 2); int64 wraps around


def _send(
    frame: pd.DataFrame,
    number: int,
    place: Place,
    partitions: int,
    shuffle: ShuffleId,
    row_type: np.dtype[np.void],
) -> _Sent:
    """Send the rows of a frame, the one with this number, to the workers that hold their partitions."""
    places = place(frame)
    sums = sum_rows(frame, places, partitions).to_numpy()
    return _Sent(shuffle_transfer(_pack(frame, places, row_type), shuffle, number), sums)


def _pack(
    frame: pd.DataFrame, places: NDArray[np.int64], row_type: np.dtype[np.void]
) -> pd.DataFrame:
    """Return the rows by partition, with the columns of ``_PACKED``."""
    order = np.argsort(places.astype(np.uint16), kind="stable")  # 16 bits: a radix sort
    places, rows = places[order], np.empty(len(frame), row_type)
    for name in frame.columns:
        rows[name] = frame[name].to_numpy()[order]
    starts = np.flatnonzero(np.append(True, places[1:] != places[:-1]))[: len(places)]
    packed = [part.tobytes() for part in np.split(rows, starts[1:])]
    return pd.DataFrame({"partition": places[starts], "rows": packed[: len(starts)]})


def _finish(shuffle: ShuffleId, *sent: _Sent) -> _Sent:
    """Wait until all rows have arrived, and return what was sent in all."""
    run = p2p_barrier(shuffle, *(each.run for each in sent))
    return _Sent(run, sum((each.sums for each in sent[1:]), sent[0].sums))


def _read(
    shuffle: ShuffleId, partition: int, sent: _Sent, row_type: np.dtype[np.void]
) -> pd.DataFrame:
    """Return the rows of a partition; raise ShuffleError if they are not those that were sent."""
    packed = shuffle_unpack(shuffle, partition, sent.run)["rows"]
    joined = np.frombuffer(b"".join(packed), row_type)
    rows = pd.DataFrame({name: np.ascontiguousarray(joined[name]) for name in row_type.names or ()})
    (actual,) = sum_rows(rows, np.zeros(len(rows), np.int64), 1).to_numpy()
    wanted = sent.sums[partition]
    if (actual != wanted).any():
        raise ShuffleError(
            f"partition {partition} of {len(sent.sums)} of a shuffle has {actual[0]:,} rows"
            + (
                f" instead of {wanted[0]:,}"
                if actual[0] != wanted[0]
                else ", but not those that it was sent"
            )
        )
    return rows


def fuse_shuffles(graph: Mapping[Key, Any]) -> dict[Key, GraphNode]:
    """Return a graph in which the task that makes rows sends them, and the task that uses them reads them.

    Between two tasks, a worker holds a frame until the scheduler has answered. Until then it makes or reads
    dozens of other frames, so that its memory would grow with their number.
    """
    nodes: dict[Key, GraphNode] = convert_legacy_graph(graph)
    nodes = _fused(nodes, lambda _, before: before.func is _read)
    return _fused(nodes, lambda task, _: task.func is _send)


def _fused(
    nodes: dict[Key, GraphNode], are_one: Callable[[Task, Task], bool]
) -> dict[Key, GraphNode]:
    """Return a graph with pairs of tasks as one: a task, and one before it that no other uses."""
    fused = dict(nodes)
    uses = Counter(key for node in nodes.values() for key in node.dependencies)
    tasks = {key: node for key, node in nodes.items() if isinstance(node, Task)}
    for key, task in tasks.items():
        before = [
            each
            for each in task.dependencies
            if uses[each] == 1 and each in tasks and are_one(task, tasks[each])
        ]
        if len(before) == 1:
            fused[key] = Task.fuse(fused.pop(before[0]), task, key=key)
    return fused

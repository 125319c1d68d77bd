"""Shuffle a frame with Dask, and verify that each partition gets exactly the rows that belong to it.

Dask's shuffle sends rows outside of its tasks, from worker to worker, and may lose some if a worker restarts
or does not respond. So the rows for each partition are counted before the shuffle, and the hashes of whole
rows are summed. A partition that leaves the shuffle is compared with these numbers before any task uses it.
``etl.compute.compute_frames`` starts a failed shuffle again.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask._task_spec import GraphNode, Task, TaskRef, convert_legacy_graph
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._shuffle import P2PShuffle
from dask.typing import Key
from distributed.shuffle._core import ShuffleId
from distributed.shuffle._shuffle import shuffle_unpack
from numpy.typing import NDArray

from etl.compute.frame_tasks import map_frames
from etl.compute.row_checksums import sum_rows
from etl.errors import ShuffleError

Place = Callable[[pd.DataFrame], NDArray[np.int64]]
"""A function that returns the number of the partition of each row."""

_PARTITION: Final = "_partition"
_SUMS: Final = pd.DataFrame({name: pd.Series(dtype="int64") for name in ("rows", "sum")})
_SUMS_PER_TASK: Final = 8  # frames that one task adds up


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
    meta = frame._meta.assign(**{_PARTITION: np.int64(0)})
    placed = map_frames("p2p.places", _with_partition, frame, place, Attempt(), meta=meta)
    sums = map_frames("p2p.sums", _sum_by_partition, placed, partitions, meta=_SUMS)
    while sums.npartitions > 1:  # a tree, as each frame of sums has a row for each partition
        sums = sums.repartition(npartitions=-(-sums.npartitions // _SUMS_PER_TASK))
        sums = map_frames("p2p.sums", _add_sums, sums, partitions, meta=_SUMS)
    return new_collection(P2PVerified(placed.expr, _PARTITION, partitions, sums=sums.expr))


class P2PVerified(P2PShuffle):
    """Dask's shuffle by a column of partitions, which it drops; each is compared with its sums when read.

    No public function of Dask takes the partition of each row.
    """

    _parameters = [*P2PShuffle._parameters, "sums"]  # noqa: RUF012, SLF001 - as in Dask

    def _layer(self) -> dict[Key, GraphNode]:
        layer: dict[Key, GraphNode] = super()._layer()
        (sums,) = map(TaskRef, self.sums.__dask_keys__())
        for key, node in layer.items():
            if isinstance(node, Task) and node.func is shuffle_unpack:
                layer[key] = Task(key, _read_partition, *node.args, sums)
        return layer


def read_where_used(graph: Mapping[Key, Any]) -> dict[Key, GraphNode]:
    """Return a graph whose tasks read the partition of a shuffle that they alone use.

    Dask reads partitions in separate tasks. Of these a worker runs dozens before the scheduler has answered
    with the first task that uses one, and holds all of them: its memory would grow with their number.
    """
    nodes: dict[Key, GraphNode] = convert_legacy_graph(graph)
    fused = dict(nodes)
    uses = Counter(key for node in nodes.values() for key in node.dependencies)
    for key, node in nodes.items():
        reads = [
            each for each in node.dependencies if uses[each] == 1 and _is_read(nodes.get(each))
        ]
        if len(reads) == 1 and isinstance(node, Task):
            fused[key] = Task.fuse(fused.pop(reads[0]), node, key=key)
    return fused


def _is_read(node: GraphNode | None) -> bool:
    return isinstance(node, Task) and node.func is _read_partition


def start_again(frame: dd.DataFrame) -> dd.DataFrame:
    """Return a frame with another attempt at each of its shuffles."""
    expression: Any = frame.expr
    operands = (operand for node in expression.walk() for operand in node.operands)
    for attempt in {operand for operand in operands if isinstance(operand, Attempt)}:
        expression = expression.substitute(attempt, Attempt())
    return new_collection(expression)


def _with_partition(frame: pd.DataFrame, place: Place, _attempt: Attempt) -> pd.DataFrame:
    return frame.assign(**{_PARTITION: place(frame)})


def _sum_by_partition(placed: pd.DataFrame, partitions: int) -> pd.DataFrame:
    """Return the number of rows and the sum of their hashes for each partition."""
    return sum_rows(placed.drop(columns=_PARTITION), placed[_PARTITION].to_numpy(), partitions)


def _add_sums(sums: pd.DataFrame, partitions: int) -> pd.DataFrame:
    """Return the sums by partition of several frames of sums; int64 wraps around."""
    total = sums.to_numpy().reshape(-1, partitions, 2).sum(axis=0)
    return pd.DataFrame(total, columns=_SUMS.columns)


def _read_partition(
    shuffle: ShuffleId, partition: int, run: int, expected: pd.DataFrame
) -> pd.DataFrame:
    """Return the rows of a partition; raise ShuffleError if they are not the expected ones."""
    rows = shuffle_unpack(shuffle, partition, run)
    actual = sum_rows(rows, np.zeros(len(rows), np.int64), 1).iloc[0]
    wanted = expected.iloc[partition]
    if not actual.equals(wanted):
        is_count = actual["rows"] != wanted["rows"]
        raise ShuffleError(
            f"partition {partition} of {len(expected)} of a shuffle has {actual['rows']:,} rows"
            + (
                f" instead of {wanted['rows']:,}"
                if is_count
                else ", but not those that it was sent"
            )
        )
    return rows

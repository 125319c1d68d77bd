"""Run the two passes of a shuffle: each finished task leaves a note, so that it is not done again."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from etl import storage
from etl.compute.dask_tasks import map_unordered, to_tokenlake_error
from etl.compute.listener import Progress
from etl.errors import TableError
from etl.job.bucket_files import BucketFile, parse_file
from etl.job.cluster_job import ClusterJob
from etl.job.shuffle_tasks import SortBucket, SortedBucket, SplitFiles
from etl.parquet.data_file import DataFile
from etl.storage import checked_json

_THREADS = 16  # they wait for storage

Result = TypeVar("Result", BucketFile, SortedBucket)


@dataclass(frozen=True)
class ShufflePass(Generic[Result]):
    """One pass: its name, its task, the folder of its notes, and the folder of the files it writes."""

    name: str
    task: "NotedTask[Result]"
    parse: Callable[[dict[str, Any]], Result]
    output: str


@dataclass(frozen=True)
class NotedTask(Generic[Result]):
    """A task that notes its result in the scratch space."""

    task: Callable[[Any], Result]
    folder: str
    name: str

    def __call__(self, number: int, unit: Any) -> Result:
        """Do a unit of work and note the result."""
        result = self.task(unit)
        checked_json.write(self.note(number), asdict(result))
        return result

    def note(self, number: int) -> str:
        """Return the URI of the note of a unit."""
        return storage.join(self.folder, note_name(self.name, number))


def note_name(name: str, number: int) -> str:
    """Return the name of the note of a unit of work."""
    return f"{name}-{number:08}.json"


def split_pass(task: SplitFiles) -> ShufflePass[BucketFile]:
    """Return the first pass."""
    return ShufflePass("split", NotedTask(task, task.folder, "split"), parse_file, task.folder)


def sort_pass(task: SortBucket) -> ShufflePass[SortedBucket]:
    """Return the second pass."""

    def parse(fields: dict[str, Any]) -> SortedBucket:
        return SortedBucket(
            **{**fields, "files": tuple(DataFile(**file) for file in fields["files"])}
        )

    return ShufflePass("sort", NotedTask(task, task.folder, "sort"), parse, task.url)


def run_pass(
    job: ClusterJob, work: ShufflePass[Result], units: Sequence[Any], *, table: str
) -> list[Result]:
    """Do the units of a pass that are not done yet, and return the results of all in order.

    ``table`` is the name of the shuffled table. Raises the error of the first unit that fails: the rest is
    done when the shuffle is run again.
    """
    started, results = time.monotonic(), _done(work, len(units))
    remaining = [(number, unit) for number, unit in enumerate(units) if number not in results]
    progress = Progress(table, 0, len(remaining))
    label = f"shuffle.{work.name}"
    answers = map_unordered(
        job.client, work.task, remaining, label=label, time_limit=job.time_limit
    )
    for unit, answer in answers:
        if isinstance(answer, BaseException):
            answers.close()
            raise to_tokenlake_error(answer, label) from answer
        results[unit[0]] = answer
        progress = replace(
            progress,
            done=progress.done + 1,
            rows=progress.rows + answer.rows,
            kept=progress.rows + answer.rows,
            text_bytes=progress.text_bytes + 4 * answer.tokens,
            seconds=time.monotonic() - started,
        )
        job.progress(progress)
    return [results[number] for number in range(len(units))]


def _done(work: ShufflePass[Result], count: int) -> dict[int, Result]:
    """Return the results that an earlier run has noted, whose files still exist."""
    notes = _sizes(work.task.folder)
    numbers = [number for number in range(count) if note_name(work.name, number) in notes]
    if not numbers:
        return {}
    files = _sizes(work.output)

    def read(number: int) -> Result | None:
        try:
            fields = checked_json.read(work.task.note(number), hint="")
        except TableError:  # damaged: do it again
            return None
        result = None if fields is None else work.parse(fields)
        return result if result is not None and _exists(result, files) else None

    with ThreadPoolExecutor(_THREADS) as pool:
        results = zip(numbers, pool.map(read, numbers), strict=True)
        return {number: result for number, result in results if result is not None}


def _exists(result: BucketFile | SortedBucket, sizes: dict[str, int]) -> bool:
    if isinstance(result, BucketFile):
        return result.name in sizes
    return all(sizes.get(file.path) == file.size for file in result.files)


def _sizes(folder: str) -> dict[str, int]:
    try:
        return storage.file_sizes(folder)
    except FileNotFoundError:
        return {}

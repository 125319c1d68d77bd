"""Send the files that the stages of a recipe name to workers, and check that these can run the recipe.

On this machine, workers copy them from where they are. Workers of a cluster copy a local file from the folder
``files`` of the lake, which they must reach anyway. A task carries only digests and versions: a worker that
joins late compares its versions, copies the files and imports the user's code before its first task.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from distributed import Client

from etl import storage
from etl.compute.dask_tasks import call_on_each_worker
from etl.compute.library_versions import describe, differences, environment_versions, hint
from etl.compute.machine_folder import is_local, machine_folder, worker_or_none
from etl.errors import ClusterError, TokenlakeError
from etl.job.tasks import ReadSplit, TokenizeUnit
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from etl.stages.base import Stage
from etl.storage.file_sets import Copies, FileSet, send_files

FOLDER: Final = "files"
"""The folder of a lake with the local files that its runs have sent to workers, by their SHA-256."""

_RUNS = 4  # whose files a worker keeps; more runs at once copy files again


@dataclass(frozen=True)
class ShippedFile:
    """The files that one path of a stage names."""

    stage: int  # position in the recipe
    path: str
    files: FileSet


@dataclass(frozen=True)
class ShippedFiles:
    """The files of a recipe's stages as workers find them, and the stages that run the user's code."""

    sets: tuple[ShippedFile, ...]
    code: tuple[tuple[int, Stage, str], ...]  # position, stage, and its identity as JSON
    versions: tuple[
        tuple[str, str], ...
    ] = ()  # of the driver; empty: workers have its installation

    def __bool__(self) -> bool:
        return bool(self.sets or self.code or self.versions)

    @contextmanager
    def on_worker(self, recipe: Recipe) -> Iterator[Recipe]:
        """Copy the files to this machine unless they are there, and yield the recipe with the copies' paths.

        Errors name the original files. Raises ClusterError if this worker cannot run the recipe.
        """
        if not self:
            yield recipe
            return
        prepared = _prepare(self)
        stages = (prepared.stage(*numbered) for numbered in enumerate(recipe.stages))
        with prepared.original_paths():
            yield recipe.model_copy(update={"stages": tuple(stages)})


@dataclass(frozen=True)
class OnWorker:
    """A task that reads the copies of its machine."""

    task: ReadSplit | TokenizeUnit
    files: ShippedFiles

    def __call__(self, *args: Any) -> list[WorkResult | None]:
        """Run the task."""
        with self.files.on_worker(self.task.recipe) as recipe:
            task: Callable[..., list[WorkResult | None]] = replace(self.task, recipe=recipe)
            return task(*args)


def ship_files(
    recipe: Recipe, client: Client, versions: tuple[tuple[str, str], ...] = ()
) -> ShippedFiles:
    """Send what workers cannot reach, and check that all workers can run the recipe.

    ``versions`` are the driver's versions, which tasks compare with their workers' versions. Raises
    RecipeError if a file cannot be read or is too large, and ClusterError if a worker cannot copy the files
    or import the user's code.
    """
    store = storage.join(storage.normalize(str(recipe.lake)), FOLDER)
    sets, code = [], []
    for number, stage in enumerate(recipe.stages):
        for path, files in stage.files().items():
            sent = files if is_local(client) else send_files(files, store)
            sets.append(ShippedFile(number, path, sent))
        if stage.user_code() is not None:
            code.append((number, stage, _identity(stage)))
    shipped = ShippedFiles(tuple(sets), tuple(code), versions)
    if sets or code:
        call_on_each_worker(client, check_worker, shipped)
    return shipped


def check_worker(shipped: ShippedFiles) -> None:
    """Copy the files to this machine and import the user's code, as a task does before it starts."""
    _prepare(shipped)


class _Prepared:
    """The copies of the files of a run on this machine, in use as long as this object lives."""

    def __init__(self, shipped: ShippedFiles) -> None:
        here = environment_versions() if shipped.versions else {}
        if different := differences(dict(shipped.versions), here):
            raise ClusterError(f"it {describe(different)}", hint=hint(different))
        folder = machine_folder()
        self._copies = Copies([each.files for each in shipped.sets], folder)
        self._paths: dict[int, dict[str, str]] = {}
        self._originals: dict[str, str] = {}
        for each, path in zip(shipped.sets, self._copies.paths, strict=True):
            self._paths.setdefault(each.stage, {})[each.path] = path
            self._originals[str(folder / each.files.key)] = each.files.root
        for number, stage, identity in shipped.code:
            local = self.stage(number, stage)
            with self.original_paths():
                local.check()
            if _identity(local) != identity:
                raise ClusterError(
                    f"the installed module of {stage.kind} differs from that of the driver",
                    hint="install the same version on all machines",
                )

    def stage(self, number: int, stage: Stage) -> Stage:
        """Return a stage of the recipe with the paths of the copies."""
        return stage.with_paths(self._paths.get(number, {}))

    @contextmanager
    def original_paths(self) -> Iterator[None]:
        """Raise errors of the library with the original place in place of the copy's."""
        try:
            yield
        except TokenlakeError as error:
            for copies, root in self._originals.items():
                if error.where is not None and copies in error.where:
                    where = error.where.replace(f"file://{copies}", root)
                    where = where.replace(copies, root.removeprefix("file://"))
                    raise type(error)(error.what, where=where, hint=error.hint) from error
            raise


@lru_cache(maxsize=_RUNS)
def _prepare(shipped: ShippedFiles) -> _Prepared:
    """Prepare this process for a run."""
    try:
        return _Prepared(shipped)
    except (TokenlakeError, OSError) as error:
        worker = worker_or_none()
        name = "this process" if worker is None else f"the worker {worker.address}"
        what, where, hint = str(error), str(Path.cwd()), None
        if isinstance(error, TokenlakeError):
            what, where, hint = error.what, error.where or where, error.hint
        raise ClusterError(
            f"{name} cannot run the recipe: {what}", where=where, hint=hint
        ) from error


def _identity(stage: Stage) -> str:
    return json.dumps(stage.identity(), sort_keys=True)

"""Submit a recipe to a cluster on Kubernetes: its file, and the local files that its stages name."""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from etl import pipelines, storage
from etl.compute.cluster import Cluster
from etl.compute.kubernetes import cluster_commands
from etl.compute.kubernetes.cluster_file import SCHEME, ClusterFile
from etl.compute.kubernetes.resources import CLUSTER_KEY, RECIPE_FOLDER
from etl.compute.listener import Listener
from etl.compute.print_listener import listener_of
from etl.compute.unit_time_limit import TIME_LIMIT, check_time_limit
from etl.errors import ClusterError, RecipeError
from etl.job.trial import part_of
from etl.recipe.overrides import SettingsLike, as_settings
from etl.recipe.recipe import Recipe, RecipeLike
from etl.recipe.recipe_file import is_shipped
from etl.recipe.variables import expand_setting
from etl.sources.source_settings import INPUT_PATHS
from etl.stages.base import Stage, map_strings
from etl.storage.file_sets import FileSet

_RECIPE_KEY: Final = "recipe.yaml"
_FILES: Final = "files"
_HINT: Final = "put it into the object store and write its URL"


@dataclass(frozen=True)
class Package:
    """What a driver needs: the arguments of ``etl run``, files by key, and their paths below the folder."""

    arguments: tuple[str, ...]
    contents: dict[str, bytes] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, path: str, content: bytes) -> None:
        """Add a file."""
        self.contents[key] = content
        self.paths[key] = path


def submit(  # noqa: PLR0913 - the options of ``run``
    recipe: RecipeLike,
    *,
    cluster: Cluster | str,
    settings: SettingsLike = (),
    env: Collection[str] = (),
    limit: int | None = None,
    share: float | None = None,
    rebuild: bool = False,
    replace_changed: bool = False,
    drop_missing: bool = False,
    apply_change: bool = False,
    time_limit: float = TIME_LIMIT,
    arguments: Sequence[str] = (),
    listener: Listener | None = None,
) -> str:
    """Start a driver that runs a recipe on Kubernetes, and return its name.

    The options are as in ``run``; ``cluster`` is ``k8s:FILE``, or a ``Cluster`` with that address and
    a number of workers. ``arguments`` are further ones of ``etl run``, such as ``--log-format=json``.
    Environment variables are replaced here: the driver gets their values. ``listener`` follows the start of
    the driver, which prints its own progress.

    Raises RecipeError if the recipe names local data, and ClusterError if the driver cannot be started or one
    is running.
    """
    cluster = Cluster(cluster) if isinstance(cluster, str) else cluster
    file = _cluster_file(cluster)
    check_time_limit(time_limit)
    settings = as_settings(settings)
    name = os.fspath(recipe) if isinstance(recipe, str | os.PathLike) else ""
    shipped = None
    if is_shipped(name):
        shipped = [name, *(f"--set={expand_setting(setting, env)}" for setting in settings)]
    recipe = Recipe.of(recipe, settings=settings, env=env)
    part_of(recipe, limit=limit, share=share)  # raises if it is invalid; the driver makes the trial
    options = {
        "workers": cluster.workers,
        "limit": limit,
        "share": share,
        "rebuild": rebuild,
        "replace-changed": replace_changed,
        "drop-missing": drop_missing,
        "apply-change": apply_change,
        "time-limit": None if time_limit == TIME_LIMIT else time_limit,
    }
    package = pack(recipe, shipped=shipped, arguments=[*_as_arguments(options), *arguments])
    text = file.model_copy(update={"context": None}).model_dump_json(
        exclude_defaults=True, indent=1
    )  # JSON is YAML; the driver uses the account of its pod
    package.add(CLUSTER_KEY, CLUSTER_KEY, text.encode())
    return cluster_commands.start_driver(
        file, package.arguments, package.contents, package.paths, listener_of(listener)
    )


def _cluster_file(cluster: Cluster) -> ClusterFile:
    """Return the file of a cluster; raise ClusterError if it has none, or what a driver does not use."""
    address = str(cluster.address)
    if not address.startswith(SCHEME):
        raise ClusterError(
            "a driver is submitted to Kubernetes only", where=address, hint="write k8s:FILE"
        )
    for name in ("memory_limit", "tls", "dashboard"):
        if getattr(cluster, name) is not None:
            hint = "memory, certificates and dashboards of Kubernetes are described by the cluster file"
            raise ClusterError(f"a driver has no {name}", where=address, hint=hint)
    return ClusterFile.load(address.removeprefix(SCHEME))


def _as_arguments(options: Mapping[str, object]) -> list[str]:
    """Return options as arguments of ``etl run``.

    >>> _as_arguments({"limit": 5, "share": None, "rebuild": True, "drop-missing": False})
    ['--limit=5', '--rebuild']
    """
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in options.items()
        if value is not None and value is not False
    ]


def pack(
    recipe: Recipe, *, shipped: Sequence[str] | None = None, arguments: Sequence[str] = ()
) -> Package:
    """Return what a driver needs to run a recipe; raise RecipeError if it names local data."""
    recipe.table_url("documents")  # raises if it names no lake
    _refuse_local("the lake", str(recipe.lake), recipe)
    # An option has precedence over the environment of the driver, which may name another lake.
    arguments = (f"--lake={recipe.lake}", *arguments)
    inside = Path(pipelines.__file__).parent if shipped is not None else None
    arguments = (*_own_paths(recipe, inside), *arguments)
    for path in recipe.source.paths:
        if not _is_below(path, inside):
            _refuse_local("the source", path, recipe)
    if shipped is not None:
        for stage in recipe.stages:
            for path in _local_paths(stage):
                if not _is_below(path, inside):
                    _refuse_local(f"a file of {stage.kind}", path, recipe)
        return Package(("run", *shipped, *arguments))
    package = Package(("run", f"{RECIPE_FOLDER}/{_RECIPE_KEY}", *arguments))
    stages = tuple(_pack_stage(stage, recipe, package) for stage in recipe.stages)
    text = recipe.model_copy(update={"stages": stages}).to_yaml()
    package.add(_RECIPE_KEY, _RECIPE_KEY, text.encode())
    return package


def _own_paths(recipe: Recipe, inside: Path | None) -> list[str]:
    """Return the paths that variables of this machine gave a shipped recipe, as arguments.

    The environment of the driver has other variables.
    """
    if inside is None:
        return []
    given = recipe.source.model_dump(mode="json", include={*INPUT_PATHS})
    paths: dict[str, str | list[str]] = {
        f"source.{key}": path for key, path in given.items() if path
    }
    for stage in recipe.tokenizers.values():
        key = "tokenize" if stage.name is None else f"tokenize.{stage.name}"
        paths[f"{key}.tokenizer"] = stage.tokenizer
    return [
        f"--set={key}={json.dumps(path, ensure_ascii=False)}".replace("${", "$${")
        for key, path in paths.items()
        if not any(_is_below(each, inside) for each in ([path] if isinstance(path, str) else path))
    ]


def _pack_stage(stage: Stage, recipe: Recipe, package: Package) -> Stage:
    """Add the local files of a stage, and return the stage with their paths in the driver."""
    paths: dict[str, str] = {}
    for path, files in stage.files().items():
        if storage.is_local(files.root):
            paths[path] = str(files.path_below(Path(RECIPE_FOLDER, _FILES)))
            _add_files(files, package)
    for path in _local_paths(stage):
        if path not in paths:  # the lakes that documents are compared with
            _refuse_local(f"a path of {stage.kind}", path, recipe)
    return stage.with_paths(paths)


def _add_files(files: FileSet, package: Package) -> None:
    for file in files.files:
        with storage.open_input(files.url_of(file)) as content:
            # Two sets, or two names in a set, may have the same content.
            digest = hashlib.sha256(f"{files.key}/{file.name}".encode()).hexdigest()
            package.add(digest, f"{_FILES}/{files.key}/{file.name}", content.read())


def _local_paths(stage: Stage) -> list[str]:
    paths: list[str] = []
    settings = stage.model_dump()
    for name in stage.paths:
        map_strings(paths.append, settings[name])
    return [path for path in paths if storage.is_local(storage.normalize(path))]


def _is_below(path: str, folder: Path | None) -> bool:
    return folder is not None and Path(path).is_relative_to(folder)


def _refuse_local(what: str, path: str, recipe: Recipe) -> None:
    if storage.is_local(storage.normalize(path)):
        raise RecipeError(
            f"{what} is on this machine ({path}), which a driver on Kubernetes cannot reach",
            where=recipe.name,
            hint=_HINT,
        )

"""Options that several commands share, with their environment variables, and how they are read."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etl.cli import output
from etl.visible_text import one_line

if TYPE_CHECKING:
    from etl.compute.cluster import Cluster as DaskCluster
    from etl.recipe.recipe import Recipe

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe file, or the name of a shipped recipe.")
]
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The URL or path of a table, e.g. LAKE/tokens.")
]
LakeArgument = Annotated[
    str,
    typer.Argument(metavar="LAKE", envvar="TOKENLAKE_LAKE", help="The URL or path of a lake."),
]
LakesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="LAKE...",
        envvar="TOKENLAKE_LAKE",
        help="The URL or path of a lake; for a mixture, NAME=LAKE for each source.",
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="URL",
        envvar="TOKENLAKE_SOURCE",
        help="Read this URL, glob or folder instead of the recipe's source; repeatable.",
    ),
]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="URL",
        envvar="TOKENLAKE_LAKE",
        help="Write to this lake instead of the recipe's.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        envvar="TOKENLAKE_SET",
        help="Change a setting, e.g. gopher_quality.min_words=80; repeatable.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="Let paths of the recipe contain this environment variable as ${NAME}; repeatable. HOME and "
        "TOKENLAKE_... are always allowed.",
    ),
]
Rebuild = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Rebuild the tables that another recipe wrote, or else all; old versions stay readable.",
    ),
]
ReplaceChanged = Annotated[
    bool,
    typer.Option("--replace-changed", help="Replace the rows of input files that have changed."),
]
DropMissing = Annotated[
    bool,
    typer.Option(
        "--drop-missing", help="Drop the rows of input files that are not listed any more."
    ),
]
ApplyChange = Annotated[
    bool,
    typer.Option(
        "--apply-change",
        help="Change the lake to this recipe, without reading again what its columns say.",
    ),
]
AtVersion = Annotated[
    str | None,
    typer.Option("--version", metavar="VERSION", help="A version number or the name of a release."),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Make the changes; without this option, only print them.")
]
NoPython = Annotated[
    bool,
    typer.Option(
        "--no-python",
        envvar="TOKENLAKE_NO_PYTHON",
        help="Refuse a recipe that names Python code, which would run with your permissions.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        envvar="TOKENLAKE_CLUSTER",
        help="A Dask scheduler, e.g. tcp://host:8786, or k8s:FILE or slurm:FILE; default: this machine.",
    ),
]
ClusterFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A cluster file; `k8s:` before it is optional.")
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="Workers: of this machine, by default up to one per core, 0: a thread of this process; of a "
        "cluster file, as it says.",
    ),
]
Tls = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        envvar="TOKENLAKE_TLS",
        help="Require TLS with the certificates that `etl certificates` wrote to this folder.",
    ),
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="BYTES", help="Memory of each worker, e.g. 2GiB.")
]
Dashboard = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where the dashboard of workers on this machine listens, e.g. 0.0.0.0:8787, which everyone "
        "can open; default: only this machine can.",
    ),
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(help="Format of the lines on stderr; json: one object per line, for collectors."),
]
Prices = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        envvar="TOKENLAKE_PRICES",
        help="Prices of workers and storage (YAML); default: list prices of AWS us-east-1.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout, and nothing else.")]


class LibraryDefault:
    """A default that the library states; it is imported when the command runs or prints its help.

    >>> print(LibraryDefault(lambda: 21600.0))
    21600
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read

    def __call__(self) -> Any:
        """Return the default."""
        return self._read()

    def __str__(self) -> str:
        return str(self._read()).removesuffix(".0")


def keyword_default(function: Callable[..., Any], name: str) -> Any:
    """Return the default of a function's parameter.

    >>> keyword_default(sorted, "reverse")
    False
    """
    from inspect import signature

    return signature(function).parameters[name].default


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help; the backspace keeps the line breaks."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def warn(text: str) -> None:
    """Print a warning to stderr."""
    output.echo(f"warning: {one_line(text)}", err=True)


def options_of(
    command: Callable[..., None], *, without: Collection[str], **others: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the arguments and options of another one.

    ``without`` names options that it does not have; ``others`` are required options that differ.
    """
    from inspect import Parameter, Signature, signature

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters = [
            parameter.replace(annotation=others[name], default=Parameter.empty)
            if name in others
            else parameter
            for name, parameter in signature(command).parameters.items()
            if name not in without
        ]
        function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return function

    return decorate


def check_part(limit: int | None, share: float | None) -> None:
    """Raise BadParameter if a trial is described in two ways."""
    if limit is not None and share is not None:
        raise typer.BadParameter("give --limit or --share, not both")


def load_recipe(
    recipe: str,
    settings: list[str],
    *,
    env: list[str] | None,
    no_python: bool,
    warn: Callable[[str], None] = warn,
) -> "Recipe":
    """Load a recipe with the settings of the command line; warn about Python code and the tokenizer.

    Raises RecipeError if it names Python code and ``no_python`` is set. That code is not imported here.
    """
    from etl.recipe.recipe import Recipe

    loaded = Recipe.load(recipe, settings=settings, env=env or ())
    if no_python:
        loaded.without_python()
    for code in loaded.code:
        warn(f"the recipe runs Python code: {code}")
    if loaded.uses_sample_tokenizer:
        warn(
            "the tokenizer is that of the sample, which fits no model: "
            "give your own with --set tokenize.tokenizer=FILE"
        )
    return loaded


def make_cluster(address: str | None, workers: str | None, **options: str | None) -> "DaskCluster":
    """Return the cluster of a command line; raise BadParameter if --workers is not valid."""
    from etl.compute.cluster import Cluster as DaskCluster

    return DaskCluster(address, workers=parse_workers(workers), **options)


def parse_workers(text: str | None) -> int | Literal["auto"] | None:
    """Return the number of workers of an option; raise BadParameter if it is neither one nor `auto`.

    >>> parse_workers("4"), parse_workers("auto")
    (4, 'auto')
    """
    if text is None:
        return None
    if text == "auto":
        return "auto"
    if not text.isdecimal():
        raise typer.BadParameter(
            f"{text!r} is not a number of workers or `auto`", param_hint="--workers"
        )
    return int(text)


def settings_of(
    sources: list[str] | None, lake: str | None, settings: list[str] | None
) -> list[str]:
    """Return the recipe settings of a command line as ``key=value``, --source and --lake last.

    >>> settings_of(["a.jsonl"], "s3://lake/web", ["seed=1"])
    ['seed=1', 'source.path=["a.jsonl"]', 'lake="s3://lake/web"']
    """
    import json

    pairs = list(settings or [])
    if sources:
        pairs.append(f"source.path={json.dumps(sources, ensure_ascii=False)}")
    if lake is not None:
        pairs.append(f"lake={json.dumps(lake, ensure_ascii=False)}")
    return pairs


def version_number(table: str, at_version: str | None) -> int | None:
    """Return the number of a version that was given as a number or a release; None for the newest."""
    from etl.lake.releases import version_of

    return None if at_version is None else version_of(table, at_version)

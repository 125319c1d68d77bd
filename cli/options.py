"""The options that several commands share, and what they mean; environment variables stand with them."""

from typing import Annotated

import typer

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe file, or the name of a shipped recipe.")
]
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The URL or path of a table, as LAKE/tokens.")
]
LakeArgument = Annotated[
    str,
    typer.Argument(metavar="LAKE", envvar="TOKENLAKE_LAKE", help="The URL or path of a lake."),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="URL",
        envvar="TOKENLAKE_SOURCE",
        help="Read this in place of the recipe's source: a URL, a glob or a folder; repeatable.",
    ),
]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="URL",
        envvar="TOKENLAKE_LAKE",
        help="Write to this lake in place of the recipe's.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        envvar="TOKENLAKE_SET",
        help="Change a setting, as gopher_quality.min_words=80; repeatable.",
    ),
]
Rebuild = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Begin the tables anew that another recipe made, or all; old versions stay readable.",
    ),
]
ReplaceChanged = Annotated[
    bool,
    typer.Option(
        "--replace-changed", help="Put the rows of changed input files in place of their old ones."
    ),
]
AtVersion = Annotated[
    str | None,
    typer.Option("--version", metavar="VERSION", help="A version's number, or a release's name."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would be.")]
NoPython = Annotated[
    bool,
    typer.Option(
        "--no-python",
        envvar="TOKENLAKE_NO_PYTHON",
        help="Refuse a recipe that names Python code: it could do anything with your rights.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]


def examples(*lines: str) -> str:
    """The end of a command's help; the backspace keeps the lines as they are."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def settings_of(
    sources: list[str] | None, lake: str | None, settings: list[str] | None
) -> list[str]:
    """All that a command line changes in a recipe, as ``key=value``; --source and --lake come last.

    >>> settings_of(["a.jsonl"], "s3://lake/web", ["seed=1"])
    ['seed=1', 'source.path=["a.jsonl"]', 'lake="s3://lake/web"']
    """
    import json

    found = list(settings or [])
    if sources:
        found.append(f"source.path={json.dumps(sources, ensure_ascii=False)}")
    if lake is not None:
        found.append(f"lake={json.dumps(lake, ensure_ascii=False)}")
    return found

"""`etl recipes`: list the shipped recipes, print one, or write one with the sample."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from etl import pipelines
from etl.cli import options, output

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl recipes",
        "etl recipes fineweb > web.yaml",
        "etl recipes demo --to .",
    )
)
def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The recipe whose file is printed.")
    ] = None,
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the recipe and the sample, its input, to this folder."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the shipped recipes, or print or write one."""
    names = pipelines.list_recipes()
    if name is None:
        about = [{"name": each, "about": _summary(_text(each))} for each in names]
        output.print_result(about, lines, as_json=as_json)
        return
    if name not in names:
        raise typer.BadParameter(f"unknown recipe {name!r}; choose from {', '.join(names)}")
    if to is not None:
        written = {"files": [str(file) for file in pipelines.write_recipe(name, to)]}
        output.print_result(written, lambda shown: shown["files"], as_json=as_json)
        return
    recipe = {"name": name, "text": _text(name)}
    output.print_result(recipe, lambda shown: shown["text"].splitlines(), as_json=as_json)


def lines(recipes: Sequence[dict[str, str]]) -> Iterator[str]:
    """Yield a line for each recipe."""
    for recipe in recipes:
        yield f"{recipe['name']:<14} {recipe['about']}".rstrip()


def _text(name: str) -> str:
    return pipelines.find_recipe(name).read_text("utf-8")


def _summary(text: str) -> str:
    """Return the first line of a recipe's opening comment."""
    first = text.split("\n", 1)[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""

"""`etl init`: inspect files and write a recipe for them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.recipe.propose import Proposal

app = typer.Typer()

_MAX_LANGUAGES = 8


@app.command(
    epilog=options.examples(
        "etl init --source 'data/*.parquet'",
        "etl init web.yaml --source s3://crawl/2026-10/ --lake s3://lake/web",
        "etl init - --source raw.jsonl --tokenizer tokenizer.json > web.yaml",
    )
)
def init(
    recipe: Annotated[
        str, typer.Argument(metavar="FILE", help="The recipe file to write; `-` is stdout.")
    ] = "recipe.yaml",
    *,
    sources: Annotated[
        list[str],
        typer.Option(
            "--source",
            metavar="URL",
            envvar="TOKENLAKE_SOURCE",
            help="The files to inspect: a URL, glob or folder; repeatable.",
        ),
    ],
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake",
            metavar="URL",
            envvar="TOKENLAKE_LAKE",
            help="The lake to write to; default: lakes/NAME beside the recipe.",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="FILE", help="The tokenizer.json of the model to train."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Inspect files and write a recipe for them.

    A few files of each format are opened. Comments give their formats, columns and languages, doubts about
    them, and limits that were loosened to keep half of the sample. Edit the recipe, and check it with `etl
    plan`.
    """
    from etl import storage
    from etl.errors import RecipeError
    from etl.recipe.propose import propose_recipe

    file = Path(recipe)
    if recipe != "-" and file.exists():
        raise RecipeError("the file exists", where=recipe, hint="give another name: etl init FILE")
    if not file.parent.is_dir():
        hint = f"create it first: mkdir -p {file.parent}"
        raise RecipeError("the folder does not exist", where=str(file.parent), hint=hint)
    is_elsewhere = recipe != "-" and file.parent.resolve() != Path.cwd()
    # Paths in a recipe are relative to its folder.
    adjust = os.path.abspath if is_elsewhere else str
    proposal = propose_recipe(
        [_adjusted(source, adjust) for source in sources],
        lake=None if lake is None else _adjusted(lake, adjust),
        tokenizer=None if tokenizer is None else _adjusted(tokenizer, adjust),
    )
    if recipe == "-":
        output.echo(proposal.text.removesuffix("\n"))
        return
    storage.write_bytes(storage.normalize(recipe), proposal.text.encode())
    for each in proposal.facts.errors:
        options.warn(str(each))
    if as_json:
        output.print_result(facts(proposal, recipe), lambda _: (), as_json=True)
    else:
        output.print_result(proposal, lambda each: lines(each, recipe))


def facts(proposal: "Proposal", file: str) -> dict[str, Any]:
    """Return a proposal as data for JSON, without its documents."""
    found = proposal.facts
    return {
        "recipe": file,
        "source": found.source,
        "formats": found.formats,
        "other_columns": found.other_columns,
        "sampled": proposal.sampled,
        "judged": proposal.judged,
        "kept": proposal.kept,
        "languages": proposal.languages,
        "stages": proposal.stages,
        "doubts": proposal.doubts,
        "changes": proposal.changes,
        "errors": [str(error) for error in found.errors],
    }


def lines(proposal: "Proposal", file: str) -> Iterator[str]:
    """Yield the formats, columns and languages of the files, the proposed stages, and the next command."""
    facts, source = proposal.facts, proposal.facts.source
    for path in source.paths:
        yield f"source      {path}"
    for each in facts.formats:
        yield f"files       {each.files:,} {each.format}, {each.bytes / 1e6:,.1f} MB"
    if any(each.columns for each in facts.formats):
        names = {"text": source.columns.text, "id": source.columns.id, "url": source.columns.url}
        yield "columns     " + ", ".join(f"{name}: {of or 'none'}" for name, of in names.items())
    if facts.other_columns:
        yield f"others      {', '.join(facts.other_columns)}"
    for each in facts.lacking_text:
        options.warn(f"the {each.format} files have no column {source.columns.text!r}")
    for doubt in proposal.doubts:
        options.warn(doubt)
    yield f"sample      {many(proposal.sampled, 'document')}"
    yield f"kept        {proposal.kept:,} of {many(proposal.judged, 'distinct text')}"
    yield from (f"changed     {change}" for change in proposal.changes)
    shares = [f"{code} {share:.0%}" for code, share in proposal.languages.items()]
    if shares:
        more = ", ..." if len(shares) > _MAX_LANGUAGES else ""
        yield f"languages   {', '.join(shares[:_MAX_LANGUAGES])}{more}"
    yield f"stages      {' -> '.join(proposal.stages)}"
    yield f"recipe      {file}"
    yield ""
    yield f"Edit the recipe, then run `etl plan {file}`."


def _adjusted(path: str, adjust: Callable[[str], str]) -> str:
    """Return a local path as a recipe in another folder names it."""
    return path if "://" in path or path.startswith("~") else adjust(path)

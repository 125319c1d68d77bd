"""`etl stages`: list the stages of recipes, or print one with its settings."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.recipe.stage_reference import SettingReference, StageReference

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl stages",
        "etl stages gopher_quality",
    )
)
def stages(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The stage whose settings are printed.")
    ] = None,
    *,
    as_json: options.AsJson = False,
) -> None:
    """List the stages of recipes, or print one with its settings."""
    from etl.recipe.stage_reference import find_stage, list_stages

    if name is None:
        output.print_result(list_stages(), list_lines, as_json=as_json)
    else:
        output.print_result(find_stage(name), stage_lines, as_json=as_json)


def list_lines(stages: Sequence["StageReference"]) -> Iterator[str]:
    """Yield a line for each stage, by group."""
    width = max(len(stage.kind) for stage in stages) + 2
    group = None
    for stage in stages:
        if stage.group != group:
            if group is not None:
                yield ""
            group = stage.group
            yield group
        item = f"  {stage.kind:<{width}}{stage.summary.replace('``', '`')}"
        yield from output.fold(item, indent=width + 2)
    yield ""
    yield "`etl stages NAME` prints the settings of a stage."


def stage_lines(stage: "StageReference") -> Iterator[str]:
    """Yield what a stage does, and its settings."""
    yield from output.reflow(stage.about.replace("``", "`"))
    if stage.shorthand is not None:
        yield ""
        yield from output.fold(f"A bare value sets `{stage.shorthand}`: `{stage.kind}: VALUE`.")
    yield ""
    yield f"For example: `- {stage.example}`"
    for setting in stage.settings:
        yield ""
        yield from _setting_lines(setting)


def _setting_lines(setting: "SettingReference") -> Iterator[str]:
    default = "required" if setting.default is None else f"default {setting.default}"
    facts = [setting.type, default, *([f"in {setting.unit}"] if setting.unit else [])]
    yield from output.fold(f"{setting.name}  ({'; '.join(facts)})", indent=4)
    yield from output.fold(f"    {setting.about.replace('``', '`')}", indent=4)

"""The error of a run whose deduplication would remove nearly all of a group, with examples."""

from collections.abc import Mapping
from json import dumps
from typing import Final

from etl.audit.row_lookup import text_of
from etl.dedup.losses import Example, Losses
from etl.delta.table import Table
from etl.errors import CollapseError, LostDocument, LostGroup
from etl.html.grid import percent
from etl.recipe.recipe import Recipe
from etl.schemas import CUT
from etl.visible_text import one_line

_TEXT_CHARS: Final = 100  # the beginning of an example


def collapse_error(recipe: Recipe, texts: Table, collapsed: Mapping[str, Losses]) -> CollapseError:
    """Return the error for groups that would lose more than the guard allows; reads the examples' texts."""
    groups = [
        LostGroup(
            group=name,
            documents=losses.documents,
            lost=losses.lost,
            text_bytes=losses.text_bytes,
            lost_bytes=losses.lost_bytes,
            examples=tuple(_with_texts(texts, each) for each in losses.examples),
        )
        for name, losses in collapsed.items()
    ]
    exempt = dumps([*recipe.guard.exempt, *collapsed], ensure_ascii=False)
    lines = [line for group in groups for line in _lines(group)]
    share = f"{recipe.guard.max_share:.0%}"
    what = f"deduplication would remove more than {share} of the following, so it was not committed"
    return CollapseError(
        "\n".join([what, *lines]),
        where=recipe.table_url("duplicates"),
        hint="if the examples share little but a notice or a menu, remove that from the text, or raise"
        f" min_similarity; if they are true copies, run again with --set 'guard.exempt={exempt}', or write"
        " `guard: {exempt: [...]}` in the recipe",
        groups=groups,
    )


def _with_texts(texts: Table, example: Example) -> LostDocument:
    is_here = example.keeper_lake is None
    keeper = _beginning(texts, example.keeper_source, example.keeper_row) if is_here else None
    return LostDocument(
        **example._asdict(),
        text=_beginning(texts, example.source, example.row),
        keeper_text=keeper,
    )


def _beginning(texts: Table, source: str, row: int) -> str:
    return str(text_of(texts, source, row)["text"])[:_TEXT_CHARS]


def _lines(group: LostGroup) -> list[str]:
    """Return a group and its examples as lines."""
    share = percent(group.lost, group.documents)
    documents = f"{group.lost:,} of {group.documents:,} documents ({share})"
    text = f"{percent(group.lost_bytes, group.text_bytes)} of the text"
    lines = [f"  {one_line(group.group)}: {documents}, {text}"]
    for each in group.examples:
        lake = "" if each.keeper_lake is None else f" of the lake {each.keeper_lake}"
        what = "shortened" if each.kind == CUT else "removed"
        lines.append(f"    {what:<9} {one_line(each.source)} row {each.row}")
        keeper = f"{one_line(each.keeper_source)} row {each.keeper_row}{lake}"
        lines.append(f"    {'kept':<9} {keeper} ({each.kind} {each.similarity:.2f})")
        shown = [text for text in (each.text, each.keeper_text) if text is not None]
        lines += [f"      | {one_line(text)}" for text in shown]
    return lines

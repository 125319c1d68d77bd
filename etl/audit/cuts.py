"""What deduplication of paragraphs has cut out of one document, or why it is left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import schemas
from etl.audit.versions import newest, versions_of
from etl.stages import DedupParagraphs
from etl.table import Table

_PREVIEWS: Final = 5
_PREVIEW_CHARS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The units of a document that stand in others, or in itself before."""

    unit: str  # paragraphs, lines or sentences
    ordinals: list[int]  # of what goes, from 0
    chars: int  # code points in it
    share: float  # of the code points of all units
    texts: list[str]  # of the first five, each its first 200 characters
    keeper_source: str  # the document with the first of them
    keeper_row: int
    left_out: bool  # for too little would stay
    version: int  # of the table ``duplicates`` that says so

    @property
    def outcome(self) -> str:
        """What became of the document, for a reader."""
        what = f"{len(self.ordinals)} {self.unit} ({self.chars:,} characters, {self.share:.0%})"
        if self.left_out:
            return f"left out: dedup_paragraphs.short, {what} of it stand in others"
        return f"{what} cut"


def cut_of(row: Mapping[str, Any], text: str, table: Table) -> Cut:
    """What a row of ``duplicates`` says of a document with this text."""
    record = newest(versions_of(table))
    stages = record.canonical["stages"] if record is not None else []
    settings: Mapping[str, Any] = next((s for s in stages if s["kind"] == "dedup_paragraphs"), {})
    stage = DedupParagraphs.model_validate(settings)
    pieces = stage.pieces(text)
    return Cut(
        unit=stage.unit,
        ordinals=row["cut"],
        chars=row["cut_chars"],
        share=row["similarity"],
        texts=[pieces[ordinal][:_PREVIEW_CHARS] for ordinal in row["cut"][:_PREVIEWS]],
        keeper_source=row["keeper_source"],
        keeper_row=row["keeper_row"],
        left_out=row["kind"] == schemas.SHORT,
        version=table.version,
    )

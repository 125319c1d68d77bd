"""Describe the units that paragraph deduplication cut out of one document."""

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
    """The units of a document that occur in other documents, or earlier in the document itself."""

    unit: str  # paragraphs, lines or sentences
    ordinals: list[int]  # of the units cut, from 0
    chars: int  # code points in the units cut
    share: float  # of the code points in all units
    texts: list[str]  # the first 200 characters of each of the first five
    keeper_source: str  # the document that keeps the first of them
    keeper_row: int
    left_out: bool  # because too little of it would remain
    version: int  # version of ``duplicates`` with this decision

    @property
    def outcome(self) -> str:
        """The outcome of the document in one line."""
        units = f"{len(self.ordinals)} {self.unit} ({self.chars:,} characters, {self.share:.0%})"
        if self.left_out:
            return f"left out: dedup_paragraphs.short, {units} are repeated"
        return f"{units} cut"


def cut_of(row: Mapping[str, Any], text: str, table: Table) -> Cut:
    """Describe the cut that a row of ``duplicates`` records for a document with this text."""
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

"""What a trace holds: the commit, row, duplicate, cut and tokens of one document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from etl import schemas
from etl.audit.rule_limits import FailedLimit
from etl.delta.table import Table
from etl.html.card import Card, Shown, document_card
from etl.lake.commit_info import find_record
from etl.lake.table_versions import Version
from etl.plural import many
from etl.recipe.recipe import Recipe
from etl.stages import DedupParagraphs
from etl.stages.dedup_base import DedupStage, find_cutting_stage

_PREVIEWS: Final = 5
_PREVIEW_CHARS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The units of a document that occur in other documents, or earlier in the document itself."""

    rule: str  # the stage
    unit: str  # paragraph, line, sentence or passage
    units: int  # how many are cut
    cut: list[
        int
    ]  # the ordinals of the units, from 0; of passages, the first byte and that after the last
    chars: int  # code points in the units cut
    share: float  # of the code points in all units
    texts: list[str]  # the first 200 characters of each of the first five
    keeper_source: str  # an earlier document, or the document itself, that has the first of them
    keeper_row: int
    left_out: bool  # because too little of it would remain
    version: int  # version of ``duplicates`` with this decision

    @property
    def outcome(self) -> str:
        """The outcome of the document in one line."""
        units = f"{many(self.units, self.unit)} ({many(self.chars, 'character')}, {self.share:.0%})"
        if self.left_out:
            return f"left out: {self.rule}.short, {units} repeated"
        return f"{units} cut"


def recorded_cutting_stage(table: Table) -> DedupStage:
    """Return the stage, with its settings, that has cut documents in a version of ``duplicates``."""
    record = find_record(table)
    stages = (
        () if record is None else Recipe.recorded(record.canonical, where=table.url).dedup_stages
    )
    return find_cutting_stage(stages) or DedupParagraphs()


def cut_of(row: Mapping[str, Any], text: str, table: Table, stage: DedupStage) -> Cut:
    """Describe the cut that a row of ``duplicates`` records for a document with this text.

    ``stage`` is the one of ``recorded_cutting_stage``.
    """
    return Cut(
        rule=stage.kind,
        unit=stage.cut_unit,
        units=stage.num_cut(pa.array([row["cut"]], pa.list_(pa.int32()))),
        cut=row["cut"],
        chars=row["cut_chars"],
        share=row["similarity"],
        texts=[piece[:_PREVIEW_CHARS] for piece in stage.removed(text, row["cut"])[:_PREVIEWS]],
        keeper_source=row["keeper_source"],
        keeper_row=row["keeper_row"],
        left_out=row["kind"] == schemas.SHORT,
        version=table.version,
    )


@dataclass(frozen=True, kw_only=True)
class TracedCommit:
    """The commit that added a row: the table's version, the run and the recipe."""

    version: int
    time: datetime  # UTC
    run_id: str | None
    recipe: str | None
    fingerprint: str | None


@dataclass(frozen=True, kw_only=True)
class RowLocation:
    """The location of a row: data file (path inside its table), row in that file, and commit."""

    file: str
    row: int
    commit: TracedCommit | None


@dataclass(frozen=True, kw_only=True)
class TracedDuplicate:
    """The document that was kept instead of this one, and their similarity (1.0: identical)."""

    keeper_source: str
    keeper_row: int
    keeper_id: str | None  # also None if the keeper is in another lake
    keeper_lake: str | None  # URL, if the keeper is in another lake
    kind: str  # exact or near
    similarity: float
    is_estimate: bool  # of the similarity, from the signatures
    version: int  # version of ``duplicates`` with this decision


@dataclass(frozen=True, kw_only=True)
class TracedTokens:
    """The tokens of a document; ``first_token`` is an offset from the start of the data file."""

    location: RowLocation
    first_token: int
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class TracedTable:
    """The Delta table that an input file belongs to, at the version at which it was read."""

    url: str
    version: int
    is_stored: (
        bool | None
    )  # whether the file is still stored, if not live; None: the store is not reachable


@dataclass(frozen=True, kw_only=True, repr=False)
class Trace(Shown):
    """The complete record of one document in a lake."""

    id: str | None
    source: str
    row: int
    verdict: str
    reason: str | None
    url: str | None
    lang: str | None
    limits: list[FailedLimit]  # of the rule that rejected it
    signals: dict[str, float]
    # Its first 500 characters, read from the input record if a rejected document is stored without text
    text: str | None
    missing_text: str | None  # why the text is missing
    outcome: str  # one line: kept, rejected or left out
    document: RowLocation
    duplicate: TracedDuplicate | None
    cut: Cut | None  # its units that occur in other documents
    tokens: dict[str, TracedTokens]  # by table, of each tokenizer
    shuffled: dict[str, RowLocation]  # by table with tokens in random order
    input: schemas.InputFile | None
    names: list[str] = field(
        default_factory=list
    )  # other URIs of the input file: it was moved or copied
    table: TracedTable | None = None  # None if the input file does not belong to a Delta table

    def _cards(self) -> list[Card]:
        """Return the trace as a card."""
        facts: dict[str, object] = {"outcome": self.outcome}
        facts |= {"id": self.id, "url": self.url, "language": self.lang}
        facts |= {f"failed limit {n}": limit for n, limit in enumerate(self.limits, 1)}
        facts["document"] = _location(self.document)
        if (other := self.duplicate) is not None:
            lake = "" if other.keeper_lake is None else f" of the lake {other.keeper_lake}"
            facts["duplicate of"] = f"{other.keeper_source} row {other.keeper_row}{lake}"
            sign = "~" if other.is_estimate else ""
            facts["similarity"] = f"{sign}{other.similarity:.2f}"
        if self.cut is not None:
            facts["cut"] = self.cut.outcome
        for name, tokens in self.tokens.items():
            facts[name] = f"{tokens.num_tokens:,}, in {_location(tokens.location)}"
        for name, location in self.shuffled.items():
            facts[name] = _location(location)
        facts["no text"] = self.missing_text
        return [document_card(self, facts)]


def commit_of(version: Version | None) -> TracedCommit | None:
    """Return the commit that made a version, as a trace shows it."""
    if version is None:
        return None
    record = version.lineage
    return TracedCommit(
        version=version.version,
        time=version.time,
        run_id=record.run_id if record else None,
        recipe=record.recipe if record else None,
        fingerprint=record.recipe_fingerprint if record else None,
    )


def _location(location: RowLocation) -> str:
    version = "" if location.commit is None else f", version {location.commit.version}"
    return f"row {location.row} of {location.file}{version}"

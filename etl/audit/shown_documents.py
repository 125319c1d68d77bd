"""The documents of a lake as an audit shows them: signals, the limits that they fail, and their texts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from etl import schemas
from etl.audit.rule_limits import FailedLimit, failed_limits, limits_of
from etl.audit.sampled_rows import read_at
from etl.audit.source_texts import read_texts
from etl.audit.trace_records import Cut
from etl.audit.tune.rejudge import StoredFilter
from etl.audit.tune.thresholds import Thresholds
from etl.delta.table import Table
from etl.html.card import Card, CardList, Shown, document_card
from etl.lake.commit_info import find_record
from etl.lake.row_ranges import Address, RangeIndex
from etl.lake.table_versions import stream_versions
from etl.recipe.recipe import Recipe

_FIXED: Final = frozenset(schemas.documents([]).names)

_STRUCK: Final = (None, "it is struck or not stored in `texts`")


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownDocument(Shown):
    """A document with what decided about it.

    ``text`` is the stored one or, of a rejected document, that of the input record before any stage.
    """

    id: str | None
    source: str
    row: int
    url: str | None
    lang: str | None
    verdict: str
    reason: str | None
    limits: list[FailedLimit]  # of the rule that rejected it
    signals: dict[str, float]
    text: str | None
    missing_text: str | None  # why the text is missing
    cut: Cut | None = None  # what deduplication cuts out of it

    def _cards(self) -> list[Card]:
        """Return the document as a card."""
        outcome = self.verdict if self.reason is None else f"rejected by {self.reason}"
        facts: dict[str, object] = {"outcome": outcome}
        facts |= {f"failed limit {n}": limit for n, limit in enumerate(self.limits, 1)}
        facts |= {"id": self.id, "url": self.url, "language": self.lang}
        facts["no text"] = self.missing_text
        if self.cut is not None:
            facts["cut"] = self.cut.outcome
        return [document_card(self, facts)]


def signals_of(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the signals of a row of ``documents`` that are not null."""
    return {n: v for n, v in document.items() if n not in _FIXED and v is not None}


class Documents:
    """The table ``documents`` at one version, with its recipe's filters and limits and access to texts.

    Without a recipe (``recipe`` is None), there are no filters and no texts of the input.
    """

    def __init__(self, table: Table, texts: Table | None) -> None:
        self.table = table
        self._texts = texts
        self.record = find_record(table)
        self.recipe: Recipe | None = None
        self.filters: list[StoredFilter] = []
        if self.record is not None:
            thresholds = Thresholds(self.record, table.url)
            self.recipe, self.filters = thresholds.recipe, thresholds.made_by
        self.limits = limits_of(self.filters)

    def show(self, rows: Sequence[Mapping[str, Any]]) -> CardList[ShownDocument]:
        """Describe rows of ``documents``; the texts of rejected ones are read again from the input."""
        stored = self._stored_texts(rows)
        # The text of a kept document is stored, unless it was struck: then it is not to be shown.
        unstored = (row for row in rows if stored.get((row["source"], row["row"])) is None)
        is_whole = self._texts is None
        texts = self.source_texts(r for r in unstored if is_whole or r["verdict"] != "kept")
        shown = CardList[ShownDocument]()
        for row in rows:
            again, why = texts.get((row["source"], row["row"]), _STRUCK)
            text = stored.get((row["source"], row["row"]), again)
            names = ("id", "source", "row", "url", "lang", "verdict", "reason")
            shown.append(
                ShownDocument(
                    **{name: row[name] for name in names},
                    limits=failed_limits(row, self.limits),
                    signals=signals_of(row),
                    text=text,
                    missing_text=why if text is None else None,
                )
            )
        return shown

    @cached_property
    def _text_files(self) -> RangeIndex:
        """The data files of ``texts``, found by a pass over the log."""
        return RangeIndex(()) if self._texts is None else RangeIndex.of(self._texts)

    def _stored_texts(self, rows: Sequence[Mapping[str, Any]]) -> dict[Address, str]:
        """Return the texts that are stored, by address."""
        if self._texts is None or not rows:
            return {}
        addresses = ((row["source"], row["row"]) for row in rows)
        found = read_at(self._texts, self._text_files, addresses, ["text"])
        return {(r["source"], r["row"]): r["text"] for r in found if r["text"] is not None}

    def source_texts(
        self, rows: Iterable[Mapping[str, Any]]
    ) -> dict[tuple[str, int], tuple[str | None, str | None]]:
        """Return by address the text of each row's record in the input, or why there is none."""
        by_source: dict[str, set[int]] = {}
        for row in rows:
            by_source.setdefault(row["source"], set()).add(row["row"])
        if not by_source or self.recipe is None:
            return {}
        files = self._input_files({*by_source})
        result: dict[tuple[str, int], tuple[str | None, str | None]] = {}
        for uri, numbers in by_source.items():
            texts, why = read_texts(files.get(uri, ()), uri, numbers, self.recipe.source)
            for number in numbers:
                result[uri, number] = texts.get(number), None if number in texts else why
        return result

    def _input_files(self, addresses: set[str]) -> dict[str, list[schemas.InputFile]]:
        """Return the names of input files, the newest first; reads no more of the log than needed."""
        files: dict[str, list[schemas.InputFile]] = {}
        found: set[str] = set()
        for version in stream_versions(self.table):
            for file in version.lineage.input_files if version.lineage is not None else ():
                address = file.uri if file.same_as is None else file.same_as
                if address in addresses - found and file.fingerprint:
                    files.setdefault(address, []).append(file)
                    if file.same_as is None:  # names are recorded after it
                        found.add(address)
            if len(found) == len(addresses):
                break
        return files

"""What differs between two lakes, or two versions of one: who left, who came, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etl.audit.report_records import LakeReport
from etl.html.card import Card, Shown
from etl.html.grid import Grid, make_grid
from etl.lake.table_names import last_table
from etl.plural import many


@dataclass(frozen=True, kw_only=True)
class MovedDocument:
    """A document that left or came, with the beginning of its text if that is still stored."""

    source: str
    row: int
    id: str | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class MovedDocuments:
    """Documents that left or came for one reason.

    ``reason`` is what became of them on the side without them: a rule of a stage that rejects them, a kind of
    duplicates as in ``duplicate.near``, or ``not read``.
    """

    reason: str
    documents: int
    examples: list[MovedDocument] = field(default_factory=list)  # drawn uniformly


@dataclass(frozen=True, kw_only=True)
class SourceChange:
    """How many documents of an input file left and came, and by how much its number of tokens changed."""

    source: str
    left: int
    came: int
    tokens: int


@dataclass(frozen=True, kw_only=True, repr=False)
class LakeDifference(Shown):
    """The difference between two lakes, or two versions of a lake.

    A document is in a lake if it is kept and not a duplicate of another one.
    """

    old: LakeReport
    new: LakeReport
    recipe: list[str]  # changed settings, as ``key: old -> new``
    libraries: list[str]  # changed library versions
    left: list[MovedDocuments]  # most frequent first
    came: list[MovedDocuments]
    other_reasons: int  # documents in neither lake, for another reason
    sources: list[SourceChange]  # that differ; most documents first
    language_tokens: dict[str, int]  # change in tokens; empty if no language was detected

    def steps(self) -> Iterator[tuple[str, int, int]]:
        """Yield what happens to documents in the order of the stages, with the counts in both lakes."""
        yield "rows", self.old.rows, self.new.rows
        for name in dict.fromkeys([*self.old.rejected, *self.new.rejected]):
            yield f"  {name}", self.old.rejected.get(name, 0), self.new.rejected.get(name, 0)
        yield "kept", self.old.kept, self.new.kept
        for kind in dict.fromkeys([*self.old.duplicates, *self.new.duplicates]):
            old, new = (each.duplicates.get(kind, 0) for each in (self.old, self.new))
            yield f"  duplicate.{kind}", old, new
        yield "cut", self.old.cut, self.new.cut
        yield "tokenized", self.old.tokenized, self.new.tokenized
        yield "tokens", self.old.tokens, self.new.tokens

    def seconds(self) -> Iterator[tuple[str, float, float]]:
        """Yield the worker seconds of each stage in both lakes, then the sums."""
        old, new = (
            {cost.name: cost.seconds for cost in each.costs} for each in (self.old, self.new)
        )
        for name in dict.fromkeys([*old, *new]):
            yield name, old.get(name, 0.0), new.get(name, 0.0)
        if old or new:
            yield "all", sum(old.values()), sum(new.values())

    def grids(self) -> list[Grid]:
        """Return the differences as tables."""
        return [
            make_grid("Settings that differ", ("setting",), self.recipe, lambda each: (each,)),
            make_grid("Libraries that differ", ("library",), self.libraries, lambda each: (each,)),
            make_grid(
                "Documents by stage",
                ("", "before", "after", "change"),
                self.steps(),
                lambda each: (each[0], f"{each[1]:,}", f"{each[2]:,}", f"{each[2] - each[1]:+,}"),
            ),
            _moved("Documents that left, by what became of them", self.left),
            _moved("Documents that came, by what they were before", self.came),
            make_grid(
                "Input files that differ",
                ("input file", "left", "came", "tokens"),
                self.sources,
                lambda each: (each.source, f"{each.left:,}", f"{each.came:,}", f"{each.tokens:+,}"),
            ),
            make_grid(
                "Tokens by language",
                ("language", "change"),
                self.language_tokens.items(),
                lambda each: (each[0], f"{each[1]:+,}"),
            ),
            make_grid(
                "Worker seconds by stage",
                ("stage", "before", "after"),
                self.seconds(),
                lambda each: (each[0], f"{each[1]:,.1f}", f"{each[2]:,.1f}"),
            ),
        ]

    @property
    def summary(self) -> str:
        """How many documents left and came, in a line."""
        left, came = (sum(each.documents for each in moved) for moved in (self.left, self.came))
        return f"{many(left, 'document')} left, {came:,} came"

    def _cards(self) -> list[Card]:
        facts = {"before": title_of(self.old), "after": title_of(self.new)}
        grids = [grid for grid in self.grids() if grid.rows]
        return [Card(title=self.summary, facts=facts, grids=grids)]


def title_of(report: LakeReport) -> str:
    """Return a lake with the version of its last table and the recipe behind it."""
    tables = {table.name: table for table in report.tables}
    last = tables[last_table(tables)]
    recipe = "" if last.fingerprint is None else f", recipe {last.recipe} {last.fingerprint[:12]}"
    return f"{report.lake}, version {last.version} of {last.name}{recipe}"


def _moved(caption: str, moved: Sequence[MovedDocuments]) -> Grid:
    return make_grid(
        caption, ("reason", "documents"), moved, lambda each: (each.reason, f"{each.documents:,}")
    )

"""Checks of the lake after a chaos case: its rows, its lineage, and its differences from the expected."""

from collections import Counter

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.job.plan import make_plan
from etl.lake.commit_info import fields_of
from etl.lake.table_specs import SHUFFLED
from etl.recipe.recipe import Recipe
from etl.storage.urls import join
from tests.chaos.corpus import Record
from tests.helpers.lake_rows import Row, addresses, names, rows

Outcome = dict[str, list[Row]]


def outcome(recipe: Recipe, records: dict[str, list[Record]]) -> Outcome:
    """Check that a lake is complete and consistent, and return all rows of all tables."""
    lake = str(recipe.lake)
    assert not make_plan(recipe).has_work()
    assert verify(lake) == []
    tables: Outcome = {name: names(rows(lake, name)) for name in (*recipe.steps, SHUFFLED.name)}
    _check_rows(tables, records)
    _check_lineage(lake, tables)
    return tables


def differences(actual: Outcome, expected: Outcome, *, quarantined: bool) -> list[str]:
    """Return the names of the tables in which two outcomes differ.

    Which copy of a document is kept depends on the documents present when they were compared. A run that
    quarantined a part of the input decided without it; then only the groups of copies must be equal, and
    one copy of each must be kept.
    """
    if not quarantined:
        return [name for name in expected if actual[name] != expected[name]]
    different = {
        "documents": actual["documents"] != expected["documents"],
        "duplicates": _groups(actual["duplicates"]) != _groups(expected["duplicates"]),
        "tokens": len(actual["tokens"]) != len(expected["tokens"]),
    }
    return [name for name, differs in different.items() if differs]


def _groups(duplicates: list[Row]) -> set[frozenset[object]]:
    """Return the groups of copies, each as a set of addresses."""
    groups: dict[object, frozenset[object]] = {}
    for row in duplicates:
        pair = (row["source"], row["row"]), (row["keeper_source"], row["keeper_row"])
        joined = frozenset(pair).union(*(groups.get(address, ()) for address in pair))
        groups.update(dict.fromkeys(joined, joined))
    return set(groups.values())


def _check_rows(tables: Outcome, records: dict[str, list[Record]]) -> None:
    """Check that every record occurs once, and tokens of every kept record that is not a duplicate."""
    documents, duplicates, tokens = (tables[name] for name in ("documents", "duplicates", "tokens"))
    ids: dict[tuple[object, object], object] = {
        (name, number): row["doc_id"]
        for name, part in records.items()
        for number, row in enumerate(part)
    }
    assert addresses(documents) == list(ids)
    assert all(row["id"] == ids[row["source"], row["row"]] for row in documents)
    kept = {a for a, row in zip(addresses(documents), documents, strict=True) if not row["reason"]}
    dropped = addresses(duplicates)
    assert len(set(dropped)) == len(dropped)
    assert set(dropped) <= kept
    assert addresses(tokens) == sorted(kept - set(dropped))
    assert tables[SHUFFLED.name] == tokens
    keepers = {(row["keeper_source"], row["keeper_row"]) for row in duplicates}
    assert keepers <= set(addresses(tokens))


def _check_lineage(lake: str, tables: Outcome) -> None:
    """Check that the counts of all commits add up to the rows of the tables."""
    sums: Counter[tuple[str, str]] = Counter()
    for name in tables:
        for entry in Table.open(join(lake, name)).history():
            counts = fields_of(entry).get("counts", {})
            fields = ("rows", "kept", "duplicates", "tokens")
            sums.update({(name, field): counts.get(field, 0) for field in fields})
    documents, duplicates, tokens = (tables[name] for name in ("documents", "duplicates", "tokens"))
    kept = sum(not row["reason"] for row in documents)
    assert sums["documents", "rows"] == len(documents)
    assert sums["documents", "kept"] == sums["duplicates", "rows"] == kept
    assert sums["duplicates", "duplicates"] == len(duplicates)
    assert sums["tokens", "kept"] == len(tokens)
    assert sums["tokens", "tokens"] == sum(int(str(row["num_tokens"])) for row in tokens)
